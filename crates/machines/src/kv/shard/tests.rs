//! Removal of what has expired, pictures, and positions that collide.

use super::*;

#[test]
fn what_has_expired_is_removed_a_few_at_a_time() {
    let mut store = Shard::whole();
    for i in 0..100 {
        store.set(
            Key::new(format!("k{i}").as_bytes()),
            b"v",
            Some(5 + i / 50),
            0,
        );
    }
    store.set(Key::new(b"stays"), b"v", None, 0);
    for (now, left) in [
        (4, 101),
        (5, 81),
        (5, 61),
        (5, 51),
        (5, 51),
        (6, 31),
        (7, 11),
        (7, 1),
    ] {
        store.purge(now, 20);
        let entries: usize = store
            .segments
            .iter()
            .map(|segment| segment.entries.len())
            .sum();
        assert_eq!(
            (store.len, entries, store.deadlines.len()),
            (left, left, left - 1)
        );
    }
}

#[test]
fn removal_copies_one_segment_at_a_time() {
    let mut store = Shard::whole();
    // One key a segment.
    for position in (0..40).map(|i| i << (64 - SEGMENT_BITS)) {
        store.set(
            Key {
                position,
                bytes: b"k",
            },
            b"v",
            Some(5),
            0,
        );
    }
    let picture = store.share().collect::<Vec<_>>();
    for left in [39, 38] {
        store.purge(5, 20);
        assert_eq!((store.len, store.shared().0), (left, left));
    }
    drop(picture);
    store.purge(5, 20);
    assert_eq!((store.len, store.shared()), (18, (0, 0)));
}

#[test]
fn a_shared_value_grows_by_zeros() {
    let (mut store, mut model) = (Shard::whole(), Vec::new());
    let mut pictures = Vec::new();
    for (i, offset) in [0, 3, 1000, 1001, 1500, 1600, 1400, 4000, 4002]
        .into_iter()
        .enumerate()
    {
        model.resize(model.len().max(offset + 2), 0);
        model[offset..offset + 2].copy_from_slice(b"ab");
        store.edit(Key::new(b"k"), offset, b"ab", 0);
        assert_eq!(
            store
                .get(Key::new(b"k"), 0)
                .and_then(|entry| entry.string().ok()),
            Some(&model[..])
        );
        if i % 2 == 0 {
            pictures.push((store.share().collect::<Vec<_>>(), model.clone()));
        }
    }
    for (segments, model) in pictures {
        let values: Vec<_> = segments
            .iter()
            .flat_map(|segment| segment.entries.iter())
            .filter_map(|entry| entry.string().ok())
            .collect();
        assert_eq!(values, [&model[..]]);
    }
}

/// Positions collide once in billions of keys, or when someone makes an effort.
#[test]
fn keys_of_one_position_are_kept_apart() {
    let mut store = Shard::whole();
    let key = |bytes| Key { position: 7, bytes };
    for (bytes, deadline) in [
        (b"b", Some(5)),
        (b"a", Some(5)),
        (b"c", None),
        (b"d", Some(6)),
    ] {
        store.set(key(bytes), bytes, deadline, 0);
    }
    let keys = |(page, next): (Vec<&Entry>, u64)| {
        (
            page.iter().map(|entry| entry.key()[0]).collect::<Vec<_>>(),
            next,
        )
    };
    assert_eq!(
        keys(store.page(0, 1, 0, &mut u64::MAX.clone())),
        (b"abcd".to_vec(), 8)
    );
    assert_eq!(
        keys(store.page(0, 1, 5, &mut u64::MAX.clone())),
        (b"cd".to_vec(), 8)
    );
    store.set_deadline(key(b"a"), None, 0);
    assert_eq!((store.live_len(5), store.next_deadline(0)), (3, Some(5)));
    assert_eq!([0, 5, 6].map(|now| store.expiring(now)), [2, 1, 0]);
    store.remove(key(b"d"), 0);
    store.purge(6, 10);
    assert_eq!(
        keys(store.page(7, 10, 6, &mut u64::MAX.clone())),
        (b"ac".to_vec(), 0)
    );
    assert_eq!((store.len, store.deadlines.len()), (2, 0));
}
