//! The batcher: where its batches go.

use super::*;
use ionian_kernel::layout::Layout;
use ionian_protocols::craq::batcher::{Batcher, In as ToBatcher};

fn batcher() -> Stage<Batcher> {
    let mut layout: Layout = layout(3);
    let on = [40, 41].map(NodeId).to_vec();
    layout.instances[kind::Batcher as usize] = numbered(vec![on]).remove(0);
    (layout.options.batch_commands, layout.options.batch_delay) = (1, Duration::ZERO);
    let config = Craq::configure(layout).expect("a deployment");
    let birth = stage::birth(kind::Batcher, 0, NodeId(40));
    Stage::new(config, &birth, Batcher::new)
}

/// The node that the next batch goes to, and its number.
fn next(batcher: &mut Stage<Batcher>) -> (u8, u64) {
    let commands = stage::batch(&b"a"[..]);
    let sends = batcher.tell(ToBatcher::Commands { commands });
    let [
        Envelope::ToChainNodes(
            to,
            In::Write {
                from: Some((_, number)),
                handed: false,
                ..
            },
        ),
    ] = &sends[..]
    else {
        panic!("a batch: {sends:?}");
    };
    (to.iter().next().expect("a node").0, *number)
}

fn pass(batcher: &mut Stage<Batcher>, ms: u64) {
    batcher.now = batcher.now + Duration::from_millis(ms);
}

fn done(batcher: &mut Stage<Batcher>, number: u64) {
    let numbers = vec![number];
    assert_eq!(batcher.tell(ToBatcher::BatchesDone { numbers }), []);
}

#[test]
fn batches_go_round_only_while_the_head_answers_none() {
    let mut batcher = batcher();
    let (head, lost) = next(&mut batcher);
    assert_eq!(head, 0);
    pass(&mut batcher, 30);
    let (_, second) = next(&mut batcher);
    done(&mut batcher, second);
    // The first one is overdue, and the head has answered a later one.
    pass(&mut batcher, 30);
    let (head, third) = next(&mut batcher);
    assert_eq!(head, 0);
    pass(&mut batcher, 60);
    let (other, elsewhere) = next(&mut batcher);
    assert_ne!(other, 0, "{lost} and {third} are unanswered");
    // The other node is, for all that the batcher knows, the head of a later chain.
    done(&mut batcher, elsewhere);
    assert_eq!(next(&mut batcher).0, other);
    done(&mut batcher, third);
    assert_eq!(next(&mut batcher).0, 0, "the head was slow");
}

/// A node that hands a batch on says so. If the head is right, it is tried again after a second,
/// and after twice the time if that fails.
#[test]
fn the_chain_that_a_node_names_puts_batches_right_again() {
    let founding = chain(0, &[(0, 1), (1, 1), (2, 1)]);
    let confirm = |batcher: &mut Stage<Batcher>| {
        let chain = founding.clone();
        assert_eq!(batcher.tell(ToBatcher::Chain { chain }), []);
    };
    let mut batcher = batcher();
    next(&mut batcher);
    for wait in [1000, 2000, 4000] {
        pass(&mut batcher, 60);
        let (other, number) = next(&mut batcher);
        assert_eq!(other, 1);
        confirm(&mut batcher);
        done(&mut batcher, number);
        pass(&mut batcher, wait - 1);
        let (other, number) = next(&mut batcher);
        assert_eq!(other, 1);
        done(&mut batcher, number);
        pass(&mut batcher, 1);
        assert_eq!(next(&mut batcher).0, 0);
    }
    pass(&mut batcher, 60);
    let (other, number) = next(&mut batcher);
    assert_eq!(other, 1);
    confirm(&mut batcher);
    done(&mut batcher, number);
    pass(&mut batcher, 8000);
    let (head, number) = next(&mut batcher);
    assert_eq!(head, 0);
    done(&mut batcher, number);
    assert_eq!(next(&mut batcher).0, 0, "the head has answered");
    let two = chain(1, &[(1, 1), (2, 1)]);
    batcher.tell(ToBatcher::Chain { chain: two });
    assert_eq!(next(&mut batcher).0, 1);
    batcher.tell(ToBatcher::Chain { chain: founding });
    assert_eq!(next(&mut batcher).0, 1, "an older one changes nothing");
}
