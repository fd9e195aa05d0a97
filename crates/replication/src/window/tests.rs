use super::*;
use alloc::collections::BTreeMap;
use core::ops::Range;
use proptest::prelude::*;

#[test]
fn forgets_below_its_base_and_refuses_above_its_limit() {
    let mut window = SlotWindow::new(Slot(10), 4);
    assert!(!window.admits(Slot(9)) && window.admits(Slot(13)) && !window.admits(Slot(14)));
    assert!(!window.admits(Slot::MAX));
    window.insert(Slot(13), 'd');
    window.insert(Slot(11), 'b');
    window.insert(Slot(11), 'c');
    assert_eq!(window.len(), 2);
    assert_eq!(
        window.iter_from(Slot(12)).collect::<Vec<_>>(),
        [(Slot(13), &'d')]
    );
    window.advance_to(Slot(12));
    assert_eq!((window.get(Slot(11)), window.len()), (None, 1));
    window.advance_to(Slot(100));
    assert_eq!(
        (window.base(), window.end(), window.is_empty()),
        (Slot(100), Slot(100), true)
    );
    assert_eq!(window.get(Slot::MAX), None);
}

/// A revocation of Mencius makes such a hole in the windows of all nodes.
const HOLE: u64 = 200_000;

#[test]
fn a_hole_costs_no_memory_and_is_forgotten_with_what_lies_before_it() {
    let mut window = SlotWindow::new(Slot(0), 1 << 22);
    for begin in (0..10).map(|jump| jump * HOLE) {
        for slot in begin..begin + 100 {
            window.insert(Slot(slot), slot);
        }
        assert!(window.room() < 20 * GAP, "{} positions", window.room());
    }
    assert_eq!((window.len(), window.end()), (1000, Slot(9 * HOLE + 100)));
    assert_eq!(window.get(Slot(9 * HOLE)), Some(&(9 * HOLE)));
    window.advance_to(Slot(8 * HOLE + 99));
    assert!(window.room() < 2 * GAP, "{} positions", window.room());
    let left: Vec<u64> = window.iter().map(|(slot, _)| slot.0).collect();
    assert_eq!(left[..2], [8 * HOLE + 99, 9 * HOLE]);
}

#[test]
fn a_full_window_gives_its_memory_back_when_it_empties() {
    let mut window = SlotWindow::new(Slot(0), 1 << 22);
    let fill = |window: &mut SlotWindow<u64>, slots: Range<u64>| {
        slots.for_each(|slot| assert_eq!(window.insert(Slot(slot), slot), None));
    };
    fill(&mut window, 0..HOLE);
    window.advance_to(Slot(HOLE - 5000));
    assert!(window.room() <= 2 * SPARE, "{} positions", window.room());
    fill(&mut window, HOLE..2 * HOLE);
    window.reset(Slot(0));
    assert!(window.room() <= 2 * SPARE, "{} positions", window.room());
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u64),
    Remove(u64),
    Advance(u64),
    Reset(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Near the base, around the size of a hole that costs entries, and far away.
    let far = GAP as u64;
    let ahead = || prop_oneof![0..9u64, far - 3..far + 3, 2 * far..9 * far];
    let step = prop_oneof![
        12 => ahead().prop_map(Step::Insert),
        3 => ahead().prop_map(Step::Remove),
        4 => ahead().prop_map(Step::Advance),
        1 => ahead().prop_map(Step::Reset),
    ];
    prop::collection::vec(step, 0..60)
}

proptest! {
    #[test]
    fn a_window_holds_what_a_map_would(steps in steps(), from in 0..9000u64, length in 0..9000u64) {
        let (mut window, mut map) = (SlotWindow::new(Slot(0), 20_000), BTreeMap::new());
        let mut base = 0;
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Insert(ahead) => prop_assert_eq!(
                    window.insert(Slot(base + ahead), number),
                    map.insert(base + ahead, number)
                ),
                Step::Remove(ahead) => {
                    prop_assert_eq!(window.remove(Slot(base + ahead)), map.remove(&(base + ahead)));
                }
                Step::Advance(ahead) => {
                    base += ahead;
                    let rest = map.split_off(&base);
                    let (mut gone, mut expected) = (Vec::new(), map.into_values());
                    window.advance_with(Slot(base), |value| gone.push(*value));
                    prop_assert!(gone.into_iter().eq(&mut expected));
                    map = rest;
                }
                Step::Reset(to) => {
                    base = to;
                    window.reset(Slot(base));
                    map.clear();
                }
            }
            prop_assert_eq!((window.base(), window.len()), (Slot(base), map.len()));
            let last = map.last_key_value().map_or(0, |(slot, _)| slot + 1);
            prop_assert!(window.end() >= Slot(last.max(base)));
            prop_assert!(window.iter().map(|(slot, value)| (slot.0, value)).eq(map.iter().map(|(slot, value)| (*slot, value))));
            let (from, end) = (base + from, base + from + length);
            let range = window.range(Slot(from), Slot(end)).map(|(slot, value)| (slot.0, value));
            prop_assert!(range.eq(map.range(from..end).map(|(slot, value)| (*slot, value))));
            let at = Slot(from);
            prop_assert_eq!(window.get_mut(at).copied(), map.get(&from).copied());
            prop_assert_eq!(window.get(at), map.get(&from));
        }
    }
}
