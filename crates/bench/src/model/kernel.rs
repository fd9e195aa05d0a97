//! What the kernel takes for a write to a connection and for a read from one, measured over
//! loopback. A deployment that runs in one process makes no system call; a node on a machine of its
//! own makes these.

use super::measure::processor_time;
use anyhow::{Context, Result, anyhow};
use ionian_planner::demand::SystemCalls;
use ionian_planner::line::Line;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

/// Connections that are written and read in turn: one call alone is too short to measure.
const CONNECTIONS: usize = 32;

/// Bytes of a short and of a long write; the long one fits into the buffers of a new connection.
const SHORT: usize = 64;
const LONG: usize = 16 << 10;

/// How often each is measured; the median counts.
const ROUNDS: usize = 301;

/// Measures it.
///
/// # Errors
/// If loopback connections cannot be opened.
pub(crate) fn measure() -> Result<SystemCalls> {
    let mut pairs = (0..CONNECTIONS)
        .map(|_| connect())
        .collect::<Result<Vec<_>>>()?;
    let [short, long] = median_us(&mut pairs, [SHORT, LONG])?;
    let line = |short, long| Line::through((SHORT as f64, short), (LONG as f64, long));
    Ok(SystemCalls {
        write: line(short.0, long.0),
        read: line(short.1, long.1),
    })
}

/// Processor time that a thread takes to give something to another one that sleeps.
///
/// # Errors
/// If there is no clock, or no thread can be started.
pub(crate) fn waking() -> Result<Duration> {
    let (give, given) = sync_channel::<()>(1);
    let (answer, answered) = sync_channel(1);
    let sleeper = std::thread::Builder::new().spawn(move || {
        while given.recv().is_ok() && answer.send(()).is_ok() {}
    })?;
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        // Long enough for the other to fall asleep; if it did not, the median does not show it.
        std::thread::sleep(Duration::from_micros(200));
        let began = processor_time()?;
        give.send(())?;
        times.push(processor_time()? - began);
        answered.recv()?;
    }
    drop(give);
    let ended = sleeper.join();
    ended.map_err(|_| anyhow!("a thread that only receives has panicked"))?;
    times.sort_unstable();
    Ok(times[ROUNDS / 2])
}

fn connect() -> Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0").context("loopback")?;
    let sender = TcpStream::connect(listener.local_addr()?).context("loopback")?;
    sender.set_nodelay(true)?;
    let (receiver, _) = listener.accept()?;
    Ok((sender, receiver))
}

/// Microseconds of one write, and of one read, for each number of bytes. They take turns, so that a
/// machine that becomes busier makes all of them slower.
fn median_us<const N: usize>(
    pairs: &mut [(TcpStream, TcpStream)],
    bytes: [usize; N],
) -> Result<[(f64, f64); N]> {
    let mut pieces = bytes.map(|bytes| vec![0; bytes]);
    let mut times = bytes.map(|_| (Vec::new(), Vec::new()));
    for _ in 0..ROUNDS {
        for (piece, (writes, reads)) in pieces.iter_mut().zip(&mut times) {
            let began = processor_time()?;
            for (sender, _) in &mut *pairs {
                sender.write_all(piece)?;
            }
            let written = processor_time()?;
            for (_, receiver) in &mut *pairs {
                receiver.read_exact(piece)?;
            }
            writes.push(written - began);
            reads.push(processor_time()? - written);
        }
    }
    Ok(times.map(|(writes, reads)| (median(writes), median(reads))))
}

/// Microseconds of one call, where each time is that of a call on every connection.
fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e6 / CONNECTIONS as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use ionian_costs::Traffic;

    /// How much more the longer one costs is not compared: on a busy machine neighbours add more
    /// than that.
    #[test]
    fn system_calls_cost_something_and_not_less_for_more_bytes() {
        let kernel = measure().unwrap();
        let us = |bytes| {
            let (bytes_out, bytes_in) = (bytes, bytes);
            kernel.us(&Traffic {
                writes: 1,
                reads: 1,
                bytes_out,
                bytes_in,
                ..Traffic::default()
            })
        };
        assert!(us(SHORT) > 0.0 && us(LONG) >= us(SHORT), "{kernel:?}");
    }
}
