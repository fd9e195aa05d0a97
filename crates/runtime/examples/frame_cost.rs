//! The cost of taking a frame out of the read buffer, copied or shared: the measurement behind
//! `SHARE_FROM` in `frame.rs`. Run with `cargo run --release -p ionian-runtime --example
//! frame_cost`.
//!
//! `shared` keeps slices of one buffer and takes a new buffer for each read, as it must when roles
//! retain messages; `copied` is what the driver does with small frames. Both retain the last 1024
//! messages, as an acceptor's log would.

use bytes::{Buf, Bytes, BytesMut};
use ionian_kernel::id::Members;
use ionian_runtime::transport::frame::{FrameReader, HEADER_BYTES, encode_frame};
use std::collections::VecDeque;
use std::hint::black_box;
use std::time::Instant;

const READ: usize = 64 << 10;
const HELD: usize = 1024;

fn main() {
    println!(
        "{:>8} {:>12} {:>12} {:>12}",
        "bytes", "driver ns", "copied ns", "shared ns"
    );
    for size in [16, 100, 1000, 4000, 16_000, 30_000] {
        let mut chunk = Vec::new();
        while chunk.len() + size + HEADER_BYTES <= READ {
            encode_frame(
                &mut chunk,
                Members::from_bits(1),
                &Bytes::from(vec![7; size - 4]),
            )
            .expect("it is small");
        }
        let frames = chunk.len() / (size + HEADER_BYTES);
        let driver = measure(frames, || {
            let mut reader = FrameReader::default();
            move |held: &mut Held| {
                reader.space().extend_from_slice(&chunk);
                while let Some(frame) = reader.next_frame().expect("frames") {
                    held.push(frame.message.decode().expect("bytes behind their length"));
                }
            }
        });
        let other = |share: bool| {
            measure(frames, || {
                let mut buffer = BytesMut::with_capacity(READ);
                let source = vec![7; frames * (size + HEADER_BYTES)];
                move |held: &mut Held| {
                    buffer.reserve(READ);
                    buffer.extend_from_slice(&source);
                    for _ in 0..frames {
                        if share {
                            held.push(
                                buffer
                                    .split_to(size + HEADER_BYTES)
                                    .freeze()
                                    .slice(HEADER_BYTES..),
                            );
                        } else {
                            held.push(Bytes::copy_from_slice(
                                &buffer[HEADER_BYTES..size + HEADER_BYTES],
                            ));
                            buffer.advance(size + HEADER_BYTES);
                        }
                    }
                }
            })
        };
        println!(
            "{size:>8} {driver:>12.1} {:>12.1} {:>12.1}",
            other(false),
            other(true)
        );
    }
}

struct Held(VecDeque<Bytes>);

impl Held {
    fn push(&mut self, message: Bytes) {
        // As decoding does: the message is sliced once more.
        self.0.push_back(message.slice(1..));
        if self.0.len() > HELD {
            black_box(self.0.pop_front());
        }
    }
}

/// Nanoseconds for a frame, the best of several rounds.
fn measure<F: FnMut(&mut Held)>(frames: usize, make: impl FnOnce() -> F) -> f64 {
    let mut read = make();
    let mut held = Held(VecDeque::new());
    let rounds = 2_000_000 / (frames * 10 + 1000) + 20;
    let mut best = f64::MAX;
    for _ in 0..7 {
        let began = Instant::now();
        for _ in 0..rounds {
            read(&mut held);
        }
        best = best.min(began.elapsed().as_nanos() as f64 / (rounds * frames) as f64);
    }
    best
}
