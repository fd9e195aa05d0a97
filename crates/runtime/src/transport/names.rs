//! Looks up the addresses of hosts. The system's resolver blocks its caller for as long as its
//! servers do not answer, and no call ends it. So each lookup has a thread of its own, and its
//! callers wait for a limited time.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::time::timeout;

/// How long a connection that is to be made waits for the addresses.
const LIMIT: Duration = Duration::from_secs(2);

/// How long a program waits for an address that it needs to start. The system's resolver asks the
/// next server after 5 s.
const START_LIMIT: Duration = Duration::from_secs(11);

/// How long an answer that came too late for its caller is kept for the next one.
const KEEP: Duration = Duration::from_secs(30);

/// How many names may be looked up at once: more than a cluster has nodes. Others are refused.
const MOST: usize = 256;

static NAMES: LazyLock<Names> = LazyLock::new(|| Names::new(|text| text.to_socket_addrs()));

/// The addresses of `host:port`, those of IPv4 first: nodes listen on one address.
///
/// # Errors
/// If the name has none, or is not found within [`LIMIT`].
pub(crate) async fn addresses(text: &str) -> io::Result<Vec<SocketAddr>> {
    match text.parse() {
        Ok(address) => Ok(vec![address]),
        Err(_) => NAMES.find(text, LIMIT).await,
    }
}

/// The first address of `host:port`. Blocks for a limited time.
///
/// # Errors
/// If the name has no address, or is not found in time.
pub fn resolve(text: &str) -> io::Result<SocketAddr> {
    match text.parse() {
        Ok(address) => Ok(address),
        Err(_) => Ok(NAMES.find_blocking(text, START_LIMIT)?[0]),
    }
}

/// Kept by each of the callers that wait for it.
type Found = Result<Vec<SocketAddr>, (ErrorKind, String)>;

type Resolver = fn(&str) -> io::Result<std::vec::IntoIter<SocketAddr>>;

/// The lookups that run, one for each name, and those whose answer no caller has taken yet.
struct Names {
    resolver: Resolver,
    lookups: Mutex<BTreeMap<String, Arc<Lookup>>>,
}

#[derive(Default)]
struct Lookup {
    /// The answer, and when it came.
    found: Mutex<Option<(Found, Instant)>>,
    has_come: Condvar,
    wakes: Notify,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Lookup {
    fn finish(&self, found: Found) {
        *locked(&self.found) = Some((found, Instant::now()));
        self.has_come.notify_all();
        self.wakes.notify_waiters();
    }

    fn is_old(&self) -> bool {
        let found = locked(&self.found);
        found.as_ref().is_some_and(|(_, at)| at.elapsed() >= KEEP)
    }

    fn answer(&self) -> Option<Found> {
        locked(&self.found).as_ref().map(|(found, _)| found.clone())
    }
}

impl Names {
    fn new(resolver: Resolver) -> Self {
        Names {
            resolver,
            lookups: Mutex::default(),
        }
    }

    async fn find(&self, text: &str, limit: Duration) -> io::Result<Vec<SocketAddr>> {
        let lookup = self.begin(text)?;
        let answer = async {
            loop {
                // It counts from here, so that no notification is missed.
                let wakes = lookup.wakes.notified();
                if let Some(found) = lookup.answer() {
                    return found;
                }
                wakes.await;
            }
        };
        let found = timeout(limit, answer).await.ok();
        self.take(text, &lookup, found, limit)
    }

    fn find_blocking(&self, text: &str, limit: Duration) -> io::Result<Vec<SocketAddr>> {
        let lookup = self.begin(text)?;
        let found = locked(&lookup.found);
        let waited = lookup
            .has_come
            .wait_timeout_while(found, limit, |found| found.is_none());
        // The result only says which of the two it was.
        drop(waited);
        self.take(text, &lookup, lookup.answer(), limit)
    }

    /// The lookup of this name that runs, or a new one.
    fn begin(&self, text: &str) -> io::Result<Arc<Lookup>> {
        let mut lookups = locked(&self.lookups);
        lookups.retain(|_, lookup| !lookup.is_old());
        if let Some(lookup) = lookups.get(text) {
            return Ok(lookup.clone());
        }
        if lookups.len() >= MOST {
            let why = format!("{MOST} names are being looked up, and none is found");
            return Err(io::Error::new(ErrorKind::ResourceBusy, why));
        }
        let lookup = Arc::<Lookup>::default();
        let (name, resolver, of_thread) = (text.to_owned(), self.resolver, lookup.clone());
        let run = move || {
            let found = resolver(&name).map(|found| {
                let mut found: Vec<_> = found.collect();
                found.sort_by_key(SocketAddr::is_ipv6);
                found
            });
            of_thread.finish(match found {
                Ok(found) if found.is_empty() => {
                    Err((ErrorKind::NotFound, "the name has no address".to_owned()))
                }
                found => found.map_err(|error| (error.kind(), error.to_string())),
            });
        };
        thread::Builder::new().name("names".into()).spawn(run)?;
        lookups.insert(text.to_owned(), lookup.clone());
        Ok(lookup)
    }

    /// What a caller gets that has waited this long. A lookup without an answer goes on.
    fn take(
        &self,
        text: &str,
        lookup: &Arc<Lookup>,
        found: Option<Found>,
        limit: Duration,
    ) -> io::Result<Vec<SocketAddr>> {
        let Some(found) = found else {
            let why = format!("the name in {text:?} was not resolved within {limit:?}");
            return Err(io::Error::new(ErrorKind::TimedOut, why));
        };
        let mut lookups = locked(&self.lookups);
        if lookups.get(text).is_some_and(|it| Arc::ptr_eq(it, lookup)) {
            lookups.remove(text);
        }
        found.map_err(|(kind, why)| {
            io::Error::new(kind, format!("{text:?} cannot be resolved: {why}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};

    const SOON: Duration = Duration::from_millis(10);
    /// No test waits this long if all is well.
    const DEADLINE: Duration = Duration::from_secs(40);

    type Gate = (Mutex<Sender<()>>, Mutex<Receiver<()>>);

    /// What lets the resolver of the test answer once.
    static GATE: LazyLock<Gate> = LazyLock::new(|| {
        let (open, opened) = channel();
        (Mutex::new(open), Mutex::new(opened))
    });

    /// Answers for one name when the test permits it, and never for others.
    fn hanging(text: &str) -> io::Result<std::vec::IntoIter<SocketAddr>> {
        while !text.starts_with("late") {
            thread::park();
        }
        locked(&GATE.1).recv().map_err(io::Error::other)?;
        let both = ["[::1]:7", "127.0.0.1:7"];
        let both: Vec<SocketAddr> = both.iter().map(|it| it.parse().unwrap()).collect();
        Ok(both.into_iter())
    }

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        // Dropping it waits for blocking calls of its own pool.
        runtime.block_on(future)
    }

    #[test]
    fn a_name_without_an_answer_has_one_thread_and_holds_up_no_caller() {
        let names = Names::new(hanging);
        for _ in 0..3 {
            let error = block_on(names.find("never:7", SOON)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TimedOut);
            let text = "the name in \"never:7\" was not resolved within 10ms";
            assert_eq!(error.to_string(), text);
        }
        assert!(names.find_blocking("never:7", SOON).is_err());
        assert_eq!(locked(&names.lookups).len(), 1);
        for other in 1..MOST {
            names
                .find_blocking(&format!("never{other}:7"), Duration::ZERO)
                .unwrap_err();
        }
        let error = names.find_blocking("one more:7", SOON).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ResourceBusy);
    }

    #[test]
    fn an_answer_that_came_too_late_is_taken_by_the_next_caller_once() {
        let names = Names::new(hanging);
        names.find_blocking("late:7", SOON).unwrap_err();
        locked(&GATE.0).send(()).unwrap();
        let found = block_on(names.find("late:7", DEADLINE)).unwrap();
        assert_eq!(
            found,
            ["127.0.0.1:7", "[::1]:7"].map(|it| it.parse().unwrap())
        );
        // A new lookup, which has no answer.
        names.find_blocking("late:7", SOON).unwrap_err();
        locked(&GATE.0).send(()).unwrap();
        assert_eq!(names.find_blocking("late:7", DEADLINE).unwrap(), found);
        assert!(locked(&names.lookups).is_empty());
    }
}
