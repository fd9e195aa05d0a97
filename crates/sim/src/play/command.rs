//! The commands of plays, and their notation.

use crate::event::Micros;
use ionian_kernel::id::ClientId;

/// A command of a play.
#[derive(Clone, Debug)]
pub(super) enum Command {
    Submit(ClientId, String),
    Move {
        how: How,
        all: bool,
        which: Which,
    },
    Cut(Which),
    Heal,
    Sync(usize),
    Wait(Micros),
    Timer(usize),
    Crash {
        node: usize,
        keeping: bool,
    },
    Restart(usize),
    UntilQuiet,
    RunFor(Micros),
    ExpectReply(ClientId, String),
    ExpectNoReply(ClientId),
    /// To this one of the scenario's layouts, or back from the change in progress.
    Change(ClientId, Option<u8>),
    ExpectEpoch(usize, u32),
}

/// What happens to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    Deliver,
    Drop,
    Repeat,
}

/// Messages of this name (or any) on this link (or any).
#[derive(Clone, Debug)]
pub(super) struct Which {
    pub(super) name: String,
    pub(super) link: Option<Link>,
}

impl Which {
    pub(super) fn has(&self, name: &str, from: usize, to: usize) -> bool {
        let named = self.name == "*" || self.name == name;
        let (sender, receiver) = self.link.unwrap_or_default();
        named && sender.is_none_or(|it| it == from) && receiver.is_none_or(|it| it == to)
    }
}

/// Sender and receiver; `None` for any.
pub(super) type Link = (Option<usize>, Option<usize>);

/// Parses a line of a play.
pub(super) fn parse_command(text: &str) -> Result<Command, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    Ok(match words[..] {
        ["submit", lane, _, ..] => Command::Submit(parse_lane(lane)?, words[2..].join(" ")),
        ["deliver", ref rest @ ..] => parse_move(How::Deliver, rest)?,
        ["drop", ref rest @ ..] => parse_move(How::Drop, rest)?,
        ["repeat", ref rest @ ..] => parse_move(How::Repeat, rest)?,
        ["cut", ref rest @ ..] => Command::Cut(parse_which(rest)?),
        ["heal"] => Command::Heal,
        ["sync", node] => Command::Sync(parse_node(node)?),
        ["wait", time] => Command::Wait(parse_time(time)?),
        ["timer", node] => Command::Timer(parse_node(node)?),
        ["crash", node] => Command::Crash {
            node: parse_node(node)?,
            keeping: false,
        },
        ["crash", node, "keeping", "all"] => Command::Crash {
            node: parse_node(node)?,
            keeping: true,
        },
        ["restart", node] => Command::Restart(parse_node(node)?),
        ["run", "until", "quiet"] => Command::UntilQuiet,
        ["run", "for", time] => Command::RunFor(parse_time(time)?),
        ["change", lane, "to", layout] => {
            Command::Change(parse_lane(lane)?, Some(parse_layout(layout)?))
        }
        ["abandon", lane] => Command::Change(parse_lane(lane)?, None),
        ["expect", "epoch", node, epoch] => {
            let parsed = epoch.parse();
            let parsed = parsed.map_err(|_| format!("{epoch:?} is not an epoch such as 2"))?;
            Command::ExpectEpoch(parse_node(node)?, parsed)
        }
        ["expect", "no", "reply", lane] => Command::ExpectNoReply(parse_lane(lane)?),
        ["expect", "reply", lane, _, ..] => {
            Command::ExpectReply(parse_lane(lane)?, words[3..].join(" "))
        }
        _ => {
            return Err(format!(
                "{text:?} is no command; known are submit, deliver, drop, repeat, cut, heal, sync, wait, timer, crash, \
                 restart, change, abandon, run until quiet, run for, expect reply, expect no reply, expect epoch"
            ));
        }
    })
}

fn parse_move(how: How, words: &[&str]) -> Result<Command, String> {
    let (all, rest) = match words {
        ["all", rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let which = if all && rest.is_empty() {
        parse_which(&["*"])?
    } else {
        parse_which(rest)?
    };
    Ok(Command::Move { how, all, which })
}

fn parse_which(words: &[&str]) -> Result<Which, String> {
    let (name, link) = match words {
        [name] => (*name, None),
        [name, link] => (*name, Some(parse_link(link)?)),
        _ => return Err("expected a message's name and, if need be, a link such as n0->n1".into()),
    };
    Ok(Which {
        name: name.to_owned(),
        link,
    })
}

fn parse_link(text: &str) -> Result<Link, String> {
    let (from, to) = text
        .split_once("->")
        .ok_or_else(|| format!("{text:?} is no link such as n0->n1"))?;
    let end = |node| {
        if node == "*" {
            Ok(None)
        } else {
            parse_node(node).map(Some)
        }
    };
    Ok((end(from)?, end(to)?))
}

pub(super) fn parse_node(text: &str) -> Result<usize, String> {
    let number = text
        .strip_prefix('n')
        .and_then(|number| number.parse().ok());
    number.ok_or_else(|| format!("{text:?} is no node such as n0"))
}

fn parse_layout(text: &str) -> Result<u8, String> {
    let number = text.parse();
    number.map_err(|_| format!("{text:?} is not a number of a layout such as 1"))
}

fn parse_lane(text: &str) -> Result<ClientId, String> {
    let number = text
        .strip_prefix('c')
        .and_then(|number| number.parse().ok());
    number
        .map(ClientId)
        .ok_or_else(|| format!("{text:?} is no client lane such as c0"))
}

fn parse_time(text: &str) -> Result<Micros, String> {
    let units = [("ms", 1000), ("us", 1), ("s", 1_000_000)];
    let found = units
        .iter()
        .find_map(|(unit, us)| Some(text.strip_suffix(unit)?.parse::<Micros>().ok()? * us));
    found.ok_or_else(|| format!("{text:?} is not a time such as 20ms"))
}
