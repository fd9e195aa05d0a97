//! SLOWLOG and LATENCY: commands that took long, and how long commands take.

use super::{NOT_AN_INTEGER, is, number};
use crate::reply::Context;
use bytes::Bytes;
use std::time::UNIX_EPOCH;

const SLOWLOG_HELP: &[&str] = &[
    "SLOWLOG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "GET [<count>] -- Return the newest slow commands of this gateway (default: 10, -1 means all).",
    "LEN -- Return the number of entries.",
    "RESET -- Delete all entries.",
];

const LATENCY_HELP: &[&str] = &[
    "LATENCY <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "HISTOGRAM [<command> ...] -- Return how long commands took, with upper bounds in microseconds.",
    "LATEST -- Return an empty list: no events are recorded.",
    "RESET [<event> ...] -- Return 0.",
];

/// How many entries SLOWLOG GET returns by default.
const NEWEST: usize = 10;

pub(super) fn slowlog(context: &mut Context<'_>, words: &[Bytes]) {
    match (&*words[1].to_ascii_lowercase(), &words[2..]) {
        (b"get", []) => get(context, NEWEST),
        (b"get", [count]) => match number(count) {
            Some(-1) => get(context, usize::MAX),
            Some(count) if count >= 0 => get(context, count as usize),
            Some(_) => context.error("ERR count should be greater than or equal to -1"),
            None => context.error(NOT_AN_INTEGER),
        },
        (b"len", []) => context.integer(context.host.slow.len() as i64),
        (b"reset", []) => {
            context.host.slow.clear();
            context.ok();
        }
        (b"help", []) => context.help(SLOWLOG_HELP),
        (b"get" | b"len" | b"reset" | b"help", _) => {
            let name = String::from_utf8_lossy(&words[1]).to_lowercase();
            context.wrong_number(format_args!("slowlog|{name}"));
        }
        _ => context.unknown_subcommand("SLOWLOG", &words[1]),
    }
}

/// As Redis shows commands whose arguments it has left out.
fn get(context: &mut Context<'_>, count: usize) {
    let entries = context.host.slow.newest(count);
    context.array(entries.len());
    for slow in entries {
        let unix = slow.at.duration_since(UNIX_EPOCH).unwrap_or_default();
        context.array(6);
        context.integer(slow.id as i64);
        context.integer(unix.as_secs() as i64);
        context.integer(slow.took.as_micros() as i64);
        context.array(1 + usize::from(slow.arguments > 0));
        context.bulk(slow.name);
        if slow.arguments > 0 {
            context.bulk(format!("... ({} more arguments)", slow.arguments));
        }
        context.bulk(slow.address);
        context.bulk(slow.client);
    }
}

pub(super) fn latency(context: &mut Context<'_>, words: &[Bytes]) {
    match &*words[1].to_ascii_lowercase() {
        b"histogram" => histogram(context, &words[2..]),
        b"latest" if words.len() == 2 => context.array(0),
        b"reset" => context.integer(0),
        b"help" if words.len() == 2 => context.help(LATENCY_HELP),
        b"latest" => context.wrong_number("latency|latest"),
        b"help" => context.wrong_number("latency|help"),
        _ => context.unknown_subcommand("LATENCY", &words[1]),
    }
}

/// The commands that were called, of those with these names or of all.
fn histogram(context: &mut Context<'_>, names: &[Bytes]) {
    let mut called = context.host.usage.times();
    called.retain(|(name, _)| names.is_empty() || names.iter().any(|wanted| is(wanted, name)));
    context.map(called.len());
    for (name, times) in called {
        let mut reached = 0;
        let bounds: Vec<(u64, u64)> = times
            .buckets()
            .filter(|(_, count)| *count > 0)
            .map(|(bound, count)| {
                reached += count;
                (bound.unwrap_or(u64::from(u32::MAX)), reached)
            })
            .collect();
        context.bulk(name);
        context.map(2);
        context.bulk("calls");
        context.integer(times.count() as i64);
        context.bulk("histogram_usec");
        context.map(bounds.len());
        for (bound, reached) in bounds {
            context.integer(bound as i64);
            context.integer(reached as i64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Host;
    use crate::limits::Limits;
    use crate::slowlog::{ENTRIES, Slow};
    use crate::traces::Kept;
    use std::time::{Duration, Instant};

    fn said(host: &Host, text: &str) -> String {
        let client = host.connect("1.2.3.4:5".into(), String::new());
        let words: Vec<Bytes> = text
            .split(' ')
            .map(|word| Bytes::copy_from_slice(word.as_bytes()))
            .collect();
        let mut out = Vec::new();
        let mut context = Context {
            host,
            client: &client,
            out: &mut out,
        };
        match is(&words[0], "SLOWLOG") {
            true => slowlog(&mut context, &words),
            false => latency(&mut context, &words),
        }
        String::from_utf8(out).unwrap().replace("\r\n", " ")
    }

    fn slow(number: u64) -> Slow {
        let now = Instant::now();
        Slow {
            id: 0,
            at: UNIX_EPOCH + Duration::from_secs(1000 + number),
            took: Duration::from_millis(11),
            name: "set",
            arguments: 2,
            address: "1.2.3.4:5".into(),
            client: b"me".to_vec(),
            kept: Kept::new(("set", 2), None, [now; 3], true),
        }
    }

    #[test]
    fn slow_commands_are_kept_up_to_a_limit_without_their_arguments() {
        let host = Host::new(Limits::default(), Box::new(|_| {}));
        assert_eq!(said(&host, "SLOWLOG GET"), "*0 ");
        let all = ENTRIES as u64 + 3;
        (0..all).for_each(|number| host.slow.add(slow(number)));
        assert_eq!(said(&host, "slowlog len"), format!(":{ENTRIES} "));
        let newest = format!(
            "*1 *6 :{} :{} :11000 *2 $3 set $22 ... (2 more arguments) $9 1.2.3.4:5 $2 me ",
            all - 1,
            999 + all
        );
        assert_eq!(said(&host, "SLOWLOG GET 1"), newest);
        assert!(said(&host, "SLOWLOG GET").starts_with("*10 "));
        assert!(said(&host, "SLOWLOG GET -1").starts_with("*128 "));
        assert_eq!(said(&host, "SLOWLOG RESET"), "+OK ");
        assert_eq!(said(&host, "SLOWLOG LEN"), ":0 ");
        host.slow.add(slow(0));
        assert!(said(&host, "SLOWLOG GET").starts_with(&format!("*1 *6 :{all} ")));
        for wrong in ["GET -2", "GET x", "GET 1 2", "LEN 1", "FOO"] {
            let reply = said(&host, &format!("SLOWLOG {wrong}"));
            assert!(reply.starts_with("-ERR "), "{wrong}: {reply}");
        }
    }

    #[test]
    fn times_of_commands_are_in_the_histogram() {
        let host = Host::new(Limits::default(), Box::new(|_| {}));
        assert_eq!(said(&host, "LATENCY HISTOGRAM"), "*0 ");
        assert_eq!(said(&host, "LATENCY LATEST"), "*0 ");
        assert_eq!(said(&host, "LATENCY RESET x"), ":0 ");
        for us in [60, 70, 150] {
            host.usage.called("get", Duration::from_micros(us));
        }
        host.usage.called("set", Duration::from_micros(1));
        let get = "$3 get *4 $5 calls :3 $14 histogram_usec *4 :100 :2 :200 :3 ";
        assert_eq!(said(&host, "LATENCY HISTOGRAM GET x"), format!("*2 {get}"));
        assert!(said(&host, "latency histogram").starts_with("*4 "));
        assert!(said(&host, "LATENCY DOCTOR").starts_with("-ERR unknown subcommand"));
    }
}
