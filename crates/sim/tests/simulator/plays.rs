//! Plays: what they can say, what they expect, and how they complain.
use crate::toy::{Defect, TOY, scenario, with};
use ionian_sim::machine::Lists;
use ionian_sim::play::Play;

fn play(defect: Defect, text: &str) -> Result<(), String> {
    let play = Play::parse(text).map_err(|error| error.to_string())?;
    play.run(TOY, &with(defect), Lists::new(3))
        .map_err(|error| error.to_string())
}

const LOST_ANSWER: &str = "
# The answer is lost: the lane asks again and gets the same answer.
submit c0 append x 7
> c0 asks append x 7
> n1 sends server::Execute to n0
deliver server::Execute n1->n0
> n0 gets server::Execute from n1
> n0 appends 1
expect no reply c0
sync n0
> n0 synced 1
> n0 sends client::Answer to n1
drop client::Answer
timer n1
> n1 timer
> n1 sends server::Execute to n0
run until quiet
expect reply c0 length 1
submit c1 read x
run until quiet
expect reply c1 [7]
";

const CRASH: &str = "
# Without its record on disk, the server must not have answered.
submit c0 append x 7
deliver all
> n0 gets server::Execute from n1
> n0 appends 1
crash n0
> n0 crashes, 1 records lost
restart n0
expect no reply c0
submit c1 read x
run until quiet
expect reply c1 nothing
run for 1s
expect reply c0 length 1
# With it, the server remembers, and executes nothing twice.
submit c0 append x 8
repeat server::Execute
crash n0 keeping all
restart n0
run until quiet
expect reply c0 length 2
";

const CUT: &str = "
# What is sent over a cut link is lost, again and again; what was under way before arrives.
submit c0 append x 7
cut server::Execute n1->*
submit c1 read x
> c1 asks get x
> n2 sends server::Execute to n0
run until quiet
expect reply c0 length 1
expect reply c1 [7]
submit c0 append x 8
> c0 asks append x 8
> n1 sends server::Execute to n0
> lost: server::Execute n1->n0
run for 1s
expect no reply c0
# After healing the lane's next attempt arrives.
heal
expect no reply c0
run for 1s
expect reply c0 length 2
";

#[test]
fn plays_pass_on_the_correct_protocol() {
    play(Defect::Nothing, LOST_ANSWER).unwrap();
    play(Defect::Nothing, CRASH).unwrap();
    play(Defect::Nothing, CUT).unwrap();
}

#[test]
fn and_fail_on_broken_ones() {
    let error = play(Defect::NoDeduplication, LOST_ANSWER).unwrap_err();
    assert!(
        error.starts_with("line 17") && error.contains("a second time"),
        "{error}"
    );
    let error = play(Defect::Unfenced, CRASH).unwrap_err();
    assert!(
        error.starts_with("line 4: expected") && error.contains("n0 sends client::Answer to n1"),
        "{error}"
    );
}

#[test]
fn a_recorded_play_expects_what_happened() {
    let recorded = Play::parse(CRASH)
        .unwrap()
        .record(TOY, &scenario(), Lists::new(3))
        .unwrap();
    assert!(
        recorded.contains("deliver all\n> n0 gets server::Execute from n1\n> n0 appends 1\n"),
        "{recorded}"
    );
    play(Defect::Nothing, &recorded).unwrap();
}

#[test]
fn mistakes_are_explained() {
    for (text, complaint) in [
        ("jump", "line 1: \"jump\" is no command; known are submit"),
        ("\n> what", "line 2: there is no command above"),
        ("deliver a b", "line 1: \"b\" is no link such as n0->n1"),
        ("cut", "line 1: expected a message's name"),
        ("wait soon", "line 1: \"soon\" is not a time such as 20ms"),
        ("sync 0", "line 1: \"0\" is no node such as n0"),
        ("sync n9", "line 1: there is no n9: there are 3 nodes"),
        ("submit c7 get x", "line 1: there is no lane c7"),
        (
            "submit c0 frob x",
            "line 1: \"frob x\" is no command; known are: get K",
        ),
        (
            "submit c0 get x\ndrop client::Answer",
            "line 2: no such message is under way; there are: server::Execute n1->n0",
        ),
        ("expect reply c0 ok", "line 1: c0 was told nothing"),
        ("restart n0", "line 1: n0 is up already"),
        ("timer n0", "line 1: n0 waits for no timer"),
        (
            "change c0 to n1",
            "line 1: \"n1\" is not a number of a layout such as 1",
        ),
        (
            "change c0 to 1",
            "line 1: there is no layout 1: the last is 0",
        ),
        ("expect epoch n0 1", "line 1: n0 is in epoch 0"),
        (
            "expect epoch n0 x",
            "line 1: \"x\" is not an epoch such as 2",
        ),
        (
            "protocol toy\nlayout 2 replaces n0",
            "line 2: the next layout is 1",
        ),
        (
            "submit c0 get x\nrun until quiet\nexpect reply c0 ok",
            "line 3: c0 was told \"nothing\" and not \"ok\"",
        ),
    ] {
        let error = play(Defect::Nothing, text).unwrap_err();
        assert!(error.starts_with(complaint), "{error}");
    }
}
