//! A byte stream is cut into frames correctly however the bytes arrive.

use crate::support::Raw;
use ionian_kernel::id::Members;
use ionian_kernel::wire::Reader;
use ionian_runtime::transport::frame::{
    Encoded, FrameError, FrameReader, HEADER_BYTES, MAX_FRAME_BYTES, encode_frame,
};
use proptest::prelude::*;

/// The addressed instances, and the encoded message.
type Taken = (Members, Vec<u8>);

/// Feeds `stream` in pieces of the given sizes, in turn.
fn read(stream: &[u8], pieces: &[usize]) -> Result<(Vec<Taken>, FrameReader), FrameError> {
    let (mut reader, mut frames, mut at) = (FrameReader::default(), Vec::new(), 0);
    for size in pieces.iter().cycle() {
        let end = stream.len().min(at + size);
        reader.space().extend_from_slice(&stream[at..end]);
        at = end;
        while let Some(frame) = reader.next_frame()? {
            frames.push((frame.members, frame.message.as_slice().to_vec()));
        }
        let held = reader.capacity();
        assert!(
            held <= 4 * reader.pending() + (256 << 10),
            "{held} bytes for {} received",
            reader.pending()
        );
        if at == stream.len() {
            return Ok((frames, reader));
        }
    }
    unreachable!("there are pieces")
}

fn messages() -> impl Strategy<Value = Vec<Taken>> {
    // Also around the size from which a frame keeps its memory.
    let size = prop_oneof![8 => 1..200usize, 2 => 32_700..32_800usize, 1 => 60_000..200_000usize];
    let message = (any::<u64>().prop_map(Members::from_bits), size, any::<u8>())
        .prop_map(|(members, size, fill)| (members, vec![fill; size]));
    prop::collection::vec(message, 0..12)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn decoded_frames_equal_encoded_frames(messages in messages(), pieces in prop::collection::vec(1..70_000usize, 1..5)) {
        let mut stream = Vec::new();
        for (members, message) in &messages {
            encode_frame(&mut stream, *members, &Raw(message.clone())).unwrap();
        }
        let (frames, reader) = read(&stream, &pieces).unwrap();
        prop_assert_eq!(reader.pending(), 0);
        prop_assert!(frames == messages);
    }

    /// TCP's checksum misses one change in 65,536, and a vote with another slot is a valid vote.
    #[test]
    fn a_changed_byte_is_detected(
        messages in messages(), at in any::<prop::sample::Index>(), other in 1..=255u8, piece in 1..70_000usize
    ) {
        prop_assume!(!messages.is_empty());
        let mut stream = Vec::new();
        for (members, message) in &messages {
            encode_frame(&mut stream, *members, &Raw(message.clone())).unwrap();
        }
        *at.get_mut(&mut stream) ^= other;
        let (mut reader, mut frames) = (FrameReader::default(), Vec::new());
        for part in stream.chunks(piece) {
            reader.space().extend_from_slice(part);
            while let Ok(Some(frame)) = reader.next_frame() {
                frames.push((frame.members, frame.message.as_slice().to_vec()));
            }
        }
        prop_assert!(frames.len() < messages.len() && messages.starts_with(&frames));
    }

    #[test]
    fn garbage_is_an_error_or_an_incomplete_frame(stream in prop::collection::vec(any::<u8>(), 0..4000), piece in 1..500usize) {
        if let Ok((frames, reader)) = read(&stream, &[piece]) {
            let taken: usize = frames.iter().map(|(_, message)| HEADER_BYTES + message.len()).sum();
            prop_assert_eq!(taken + reader.pending(), stream.len());
        }
    }

    #[test]
    fn a_cut_stream_yields_its_whole_frames(count in 1..20usize, size in 1..300usize, cut in any::<prop::sample::Index>()) {
        let mut stream = Vec::new();
        for index in 0..count {
            encode_frame(&mut stream, Members::from_bits(index as u64), &Raw(vec![1; size])).unwrap();
        }
        let cut = cut.index(stream.len());
        let (frames, reader) = read(&stream[..cut], &[64]).unwrap();
        prop_assert_eq!(frames.len(), cut / (HEADER_BYTES + size));
        prop_assert_eq!(reader.pending(), cut % (HEADER_BYTES + size));
    }
}

#[test]
fn frame_lengths_out_of_range_are_errors_before_the_body_arrives() {
    let announce = |length: usize| {
        let mut reader = FrameReader::default();
        reader
            .space()
            .extend_from_slice(&(length as u32).to_le_bytes());
        let frame = reader.next_frame().map(|frame| frame.is_some());
        reader.space();
        (frame, reader.capacity())
    };
    for length in [MAX_FRAME_BYTES + 1, i32::MAX as usize] {
        assert_eq!(announce(length).0, Err(FrameError::TooLarge { length }));
    }
    for length in 0..=HEADER_BYTES - 4 {
        assert_eq!(announce(length).0, Err(FrameError::TooShort { length }));
    }
    let (frame, capacity) = announce(MAX_FRAME_BYTES);
    assert_eq!(frame, Ok(false));
    assert!(
        capacity <= 128 << 10,
        "{capacity} bytes for an announcement"
    );
}

#[test]
fn a_frame_beyond_the_limit_is_not_written() {
    let mut out = vec![7];
    let limit = MAX_FRAME_BYTES + 4 - HEADER_BYTES;
    let length = MAX_FRAME_BYTES + 1;
    assert_eq!(
        encode_frame(&mut out, Members::from_bits(1), &Raw(vec![0; limit + 1])),
        Err(FrameError::TooLarge { length })
    );
    assert_eq!(out, [7]);
    encode_frame(&mut out, Members::from_bits(1), &Raw(vec![0; limit])).unwrap();
    assert_eq!(out.len(), 1 + 4 + MAX_FRAME_BYTES);
}

#[test]
fn small_message_does_not_retain_the_read_buffer_and_large_one_is_not_copied() {
    let mut small = Vec::new();
    encode_frame(&mut small, Members::from_bits(1), &Raw(vec![1; 60])).unwrap();
    let mut reader = FrameReader::default();
    reader.space().extend_from_slice(&small);
    let buffer = reader.space().as_ptr();
    let Encoded::Small { bytes, arena } = reader.next_frame().unwrap().unwrap().message else {
        panic!("it is small")
    };
    assert_eq!(bytes.as_ptr(), buffer.wrapping_add(HEADER_BYTES));
    let part = Reader::copying(bytes, arena).slice(60).unwrap();
    assert!(!(buffer..buffer.wrapping_add(small.len())).contains(&part.as_ptr()));

    let mut large = Vec::new();
    encode_frame(&mut large, Members::from_bits(1), &Raw(vec![1; 100_000])).unwrap();
    let mut reader = FrameReader::default();
    reader.space().extend_from_slice(&large);
    let buffer = reader.space().as_ptr();
    let Encoded::Large(message) = reader.next_frame().unwrap().unwrap().message else {
        panic!("it is large")
    };
    assert_eq!(message.as_ptr(), buffer.wrapping_add(HEADER_BYTES));
    assert!(
        message.is_unique(),
        "the reader holds on to the memory of a frame it gave out"
    );
}
