//! A thread that does one job at a time for the thread that owns it.

use crate::error::{WalError, io_error};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::{self, JoinHandle};

type Task<T> = Box<dyn FnOnce() -> T + Send>;

/// The thread, made when the first job comes.
pub(crate) struct Worker<T> {
    task: &'static str,
    thread: Option<Thread<T>>,
    /// Given to the thread.
    notify: Option<Box<dyn Fn() + Send>>,
    /// How many jobs have been started whose result was not taken yet.
    under_way: usize,
}

struct Thread<T> {
    jobs: Sender<Task<T>>,
    results: Receiver<T>,
    handle: JoinHandle<()>,
}

impl<T: Send + 'static> Worker<T> {
    /// A worker that calls `notify` on its thread after each job. `task` completes the sentence
    /// "the thread that ..".
    pub(crate) fn new(task: &'static str, notify: Box<dyn Fn() + Send>) -> Self {
        Worker {
            task,
            thread: None,
            notify: Some(notify),
            under_way: 0,
        }
    }

    /// Starts a job.
    pub(crate) fn start(
        &mut self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<(), WalError> {
        if self.thread.is_none() {
            self.thread = Some(self.spawn()?);
        }
        let thread = self.thread.as_ref().expect("was just made");
        self.under_way += 1;
        thread
            .jobs
            .send(Box::new(job))
            .map_err(|_| WalError::ThreadDied { task: self.task })
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.under_way > 0
    }

    /// The result of a job that is done.
    pub(crate) fn poll(&mut self) -> Result<Option<T>, WalError> {
        let Some(thread) = &self.thread else {
            return Ok(None);
        };
        match thread.results.try_recv() {
            Ok(result) => {
                self.under_way -= 1;
                Ok(Some(result))
            }
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(WalError::ThreadDied { task: self.task }),
        }
    }

    /// Waits for the result of a job that is under way.
    pub(crate) fn wait(&mut self) -> Result<T, WalError> {
        let died = WalError::ThreadDied { task: self.task };
        let thread = self
            .thread
            .as_ref()
            .filter(|_| self.under_way > 0)
            .expect("a job is under way");
        let result = thread.results.recv().map_err(|_| died)?;
        self.under_way -= 1;
        Ok(result)
    }

    fn spawn(&mut self) -> Result<Thread<T>, WalError> {
        let (jobs, todo) = channel::<Task<T>>();
        let (done, results) = channel();
        let notify = self.notify.take().expect("the thread is made once");
        let run = move || {
            for job in todo {
                // No caller takes the result of what was under way when the log was dropped.
                let _ = done.send(job());
                notify();
            }
        };
        #[expect(
            clippy::disallowed_methods,
            reason = "a sync blocks its thread; with HandOff::Never this one is not started"
        )]
        let spawned = thread::Builder::new().name("wal".into()).spawn(run);
        let handle = spawned.map_err(io_error("start the thread", Path::new(self.task)))?;
        Ok(Thread {
            jobs,
            results,
            handle,
        })
    }
}

impl<T> Drop for Worker<T> {
    /// Waits for the thread: no thread may write in the directory when the next owner gets it.
    fn drop(&mut self) {
        if let Some(Thread {
            jobs,
            results,
            handle,
        }) = self.thread.take()
        {
            drop((jobs, results));
            // A panic there was reported by the calls that missed its result.
            let _ = handle.join();
        }
    }
}
