//! From the words of a client to a typed command, with the errors of Redis 7 in its order: the
//! number of arguments, the options, the numbers in them.

use super::command::{Condition, Expiry, Kind, MAX_VALUE_LEN, Only, Op, SetForm, When};
use super::long_double::{self, Parsed};
use super::number;
use super::reply::{NOT_AN_INTEGER, TOO_LONG, WRONG_FLOAT, invalid_expire};
use super::stream;
use super::table;
use bytes::Bytes;

/// Why there is no command. Both hold the error text without the leading `-`.
#[derive(Debug)]
pub(super) enum Refused {
    /// No such command, or the wrong number of arguments: MULTI does not even queue it.
    AtOnce(String),
    /// Redis finds it when it executes the command.
    WhenExecuted(String),
}

impl From<&str> for Refused {
    fn from(text: &str) -> Refused {
        Refused::WhenExecuted(text.to_owned())
    }
}

pub(super) type Parsing = Result<Op<Bytes>, Refused>;
pub(super) type Parse = fn(&[Bytes]) -> Parsing;

pub(super) const SYNTAX: &str = "ERR syntax error";

pub(super) fn parse(argv: &[Bytes]) -> Parsing {
    let Some(info) = table::command_info(argv) else {
        let groups = argv.first().and_then(|name| stream::parse::refused(name));
        let text = groups.map_or_else(|| unknown(argv), str::to_owned);
        return Err(Refused::AtOnce(text));
    };
    let arity = info.arity.unsigned_abs() as usize;
    if argv.len() < arity || info.arity > 0 && argv.len() > arity {
        return Err(Refused::AtOnce(wrong_number(info.name)));
    }
    if argv.iter().any(|word| word.len() > MAX_VALUE_LEN) {
        return Err(Refused::AtOnce(TOO_LONG.to_owned()));
    }
    (info.parse)(argv)
}

/// Redis prints the name and the arguments up to 128 bytes each, the latter in sum.
fn unknown(argv: &[Bytes]) -> String {
    const LIMIT: usize = 128;
    let mut text = b"ERR unknown command '".to_vec();
    text.extend(argv.first().into_iter().flatten().take(LIMIT));
    text.extend_from_slice(b"', with args beginning with: ");
    let start = text.len();
    for word in argv.iter().skip(1) {
        let used = text.len() - start;
        if used >= LIMIT {
            break;
        }
        text.push(b'\'');
        text.extend(word.iter().take(LIMIT - used));
        text.extend_from_slice(b"' ");
    }
    one_line(&text)
}

fn one_line(text: &[u8]) -> String {
    String::from_utf8_lossy(text).replace(['\r', '\n'], " ")
}

pub(super) fn wrong_number(command: &str) -> String {
    format!("ERR wrong number of arguments for '{command}' command")
}

pub(super) fn integer(word: &[u8]) -> Result<i64, Refused> {
    number::integer(word).ok_or_else(|| NOT_AN_INTEGER.into())
}

pub(super) fn is(word: &[u8], option: &str) -> bool {
    word.eq_ignore_ascii_case(option.as_bytes())
}

/// The options of SET and GETEX that give a deadline: their unit, and from when it counts.
fn deadline_option(word: &[u8]) -> Option<(bool, bool)> {
    const OPTIONS: [(&str, (bool, bool)); 4] = [
        ("ex", (true, true)),
        ("px", (false, true)),
        ("exat", (true, false)),
        ("pxat", (false, false)),
    ];
    OPTIONS
        .iter()
        .find(|(name, _)| is(word, name))
        .map(|(_, form)| *form)
}

fn when(amount: i64, (seconds, relative): (bool, bool)) -> When {
    When {
        amount,
        seconds,
        relative,
    }
}

/// Refuses early what executing the command would refuse whatever the time is.
fn possible(when: When, command: &str) -> Result<Expiry, Refused> {
    if when.is_possible() {
        Ok(Expiry::At(when))
    } else {
        Err(Refused::WhenExecuted(invalid_expire(command)))
    }
}

/// The words behind the fixed arguments of SET and GETEX.
#[derive(Default)]
struct Options<'a> {
    condition: Option<Condition>,
    get: bool,
    /// KEEPTTL for SET, PERSIST for GETEX: neither goes with a deadline.
    alone: bool,
    deadline: Option<((bool, bool), &'a Bytes)>,
}

impl<'a> Options<'a> {
    fn parse(words: &'a [Bytes], is_set: bool) -> Result<Options<'a>, Refused> {
        let mut options = Options::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if let Some(form) = deadline_option(word) {
                let other = options.deadline.is_some_and(|(earlier, _)| earlier != form);
                let (false, false, Some(amount)) = (options.alone, other, words.next()) else {
                    return Err(SYNTAX.into());
                };
                options.deadline = Some((form, amount));
            } else if is(word, if is_set { "keepttl" } else { "persist" })
                && options.deadline.is_none()
            {
                options.alone = true;
            } else if is_set && is(word, "get") {
                options.get = true;
            } else if is_set && is(word, "nx") && options.condition != Some(Condition::IfPresent) {
                options.condition = Some(Condition::IfMissing);
            } else if is_set && is(word, "xx") && options.condition != Some(Condition::IfMissing) {
                options.condition = Some(Condition::IfPresent);
            } else {
                return Err(SYNTAX.into());
            }
        }
        Ok(options)
    }

    fn when(&self) -> Result<Option<When>, Refused> {
        let when = |(form, amount): ((bool, bool), &Bytes)| Ok(when(integer(amount)?, form));
        self.deadline.map(when).transpose()
    }
}

pub(super) fn set(argv: &[Bytes]) -> Parsing {
    let options = Options::parse(&argv[3..], true)?;
    let expiry = match options.when()? {
        Some(when) => possible(when, "set")?,
        None if options.alone => Expiry::Keep,
        None => Expiry::Clear,
    };
    Ok(Op::Set {
        key: argv[1].clone(),
        value: argv[2].clone(),
        form: if options.get {
            SetForm::SetGet
        } else {
            SetForm::Set
        },
        condition: options.condition.unwrap_or(Condition::Always),
        expiry,
    })
}

pub(super) fn get_ex(argv: &[Bytes]) -> Parsing {
    let options = Options::parse(&argv[2..], false)?;
    let expiry = match options.when() {
        // Redis looks for the key first, and only then at the time.
        Err(_) => Expiry::NotANumber,
        Ok(Some(when)) => Expiry::At(when),
        Ok(None) if options.alone => Expiry::Clear,
        Ok(None) => Expiry::Keep,
    };
    Ok(Op::GetEx {
        key: argv[1].clone(),
        expiry,
    })
}

pub(super) fn set_ex(argv: &[Bytes], seconds: bool) -> Parsing {
    let (form, name) = if seconds {
        (SetForm::SetEx, "setex")
    } else {
        (SetForm::PSetEx, "psetex")
    };
    let expiry = possible(when(integer(&argv[2])?, (seconds, true)), name)?;
    Ok(plain_set(
        &argv[1],
        &argv[3],
        form,
        Condition::Always,
        expiry,
    ))
}

pub(super) fn set_nx(argv: &[Bytes]) -> Parsing {
    Ok(plain_set(
        &argv[1],
        &argv[2],
        SetForm::SetNx,
        Condition::IfMissing,
        Expiry::Clear,
    ))
}

pub(super) fn get_set(argv: &[Bytes]) -> Parsing {
    Ok(plain_set(
        &argv[1],
        &argv[2],
        SetForm::SetGet,
        Condition::Always,
        Expiry::Clear,
    ))
}

fn plain_set(
    key: &Bytes,
    value: &Bytes,
    form: SetForm,
    condition: Condition,
    expiry: Expiry,
) -> Op<Bytes> {
    Op::Set {
        key: key.clone(),
        value: value.clone(),
        form,
        condition,
        expiry,
    }
}

pub(super) fn pairs(argv: &[Bytes], name: &str) -> Result<Vec<(Bytes, Bytes)>, Refused> {
    if argv.len().is_multiple_of(2) {
        return Err(Refused::WhenExecuted(wrong_number(name)));
    }
    Ok(argv[1..]
        .chunks_exact(2)
        .map(|pair| (pair[0].clone(), pair[1].clone()))
        .collect())
}

pub(super) fn incr(argv: &[Bytes], by: i64) -> Parsing {
    Ok(Op::IncrBy {
        key: argv[1].clone(),
        by,
    })
}

pub(super) fn incr_by(argv: &[Bytes]) -> Parsing {
    incr(argv, integer(&argv[2])?)
}

pub(super) fn decr_by(argv: &[Bytes]) -> Parsing {
    let by = integer(&argv[2])?;
    incr(
        argv,
        by.checked_neg().ok_or("ERR decrement would overflow")?,
    )
}

pub(super) fn incr_by_float(argv: &[Bytes]) -> Parsing {
    let by = match long_double::parse(&argv[2]) {
        Parsed::Finite(by) => Some(by),
        // Redis looks at the value first.
        Parsed::Infinite => None,
        Parsed::Invalid => return Err(WRONG_FLOAT.into()),
    };
    Ok(Op::IncrByFloat {
        key: argv[1].clone(),
        by,
    })
}

pub(super) fn append(argv: &[Bytes]) -> Parsing {
    Ok(Op::Append {
        key: argv[1].clone(),
        value: argv[2].clone(),
    })
}

pub(super) fn get_range(argv: &[Bytes]) -> Parsing {
    let (start, end) = (integer(&argv[2])?, integer(&argv[3])?);
    Ok(Op::GetRange {
        key: argv[1].clone(),
        start,
        end,
    })
}

pub(super) fn set_range(argv: &[Bytes]) -> Parsing {
    let offset = integer(&argv[2])?;
    let offset = u64::try_from(offset).map_err(|_| "ERR offset is out of range")?;
    Ok(Op::SetRange {
        key: argv[1].clone(),
        offset,
        value: argv[3].clone(),
    })
}

pub(super) fn ttl(argv: &[Bytes], seconds: bool, relative: bool) -> Parsing {
    Ok(Op::Ttl {
        key: argv[1].clone(),
        seconds,
        relative,
    })
}

pub(super) fn expire(argv: &[Bytes], seconds: bool, relative: bool) -> Parsing {
    let mut only = Only::default();
    for word in &argv[3..] {
        let option = match word {
            word if is(word, "nx") => &mut only.missing,
            word if is(word, "xx") => &mut only.present,
            word if is(word, "gt") => &mut only.greater,
            word if is(word, "lt") => &mut only.less,
            _ => {
                let text = [b"ERR Unsupported option ", &word[..]].concat();
                return Err(Refused::WhenExecuted(one_line(&text)));
            }
        };
        *option = true;
    }
    if only.missing && (only.present || only.greater || only.less) {
        return Err("ERR NX and XX, GT or LT options at the same time are not compatible".into());
    }
    if only.greater && only.less {
        return Err("ERR GT and LT options at the same time are not compatible".into());
    }
    let when = When {
        amount: integer(&argv[2])?,
        seconds,
        relative,
    };
    Ok(Op::Expire {
        key: argv[1].clone(),
        when,
        only,
    })
}

pub(super) fn flush(argv: &[Bytes]) -> Parsing {
    match &argv[1..] {
        [] => Ok(Op::FlushAll),
        [mode] if is(mode, "async") || is(mode, "sync") => Ok(Op::FlushAll),
        _ => Err(SYNTAX.into()),
    }
}

pub(super) fn rename(argv: &[Bytes], only_new: bool) -> Parsing {
    Ok(Op::Rename {
        from: argv[1].clone(),
        to: argv[2].clone(),
        only_new,
    })
}

pub(super) fn copy(argv: &[Bytes]) -> Parsing {
    let mut replace = false;
    let mut words = argv[3..].iter();
    while let Some(word) = words.next() {
        if is(word, "replace") {
            replace = true;
        } else if is(word, "db") {
            // There is one database, and it has the number zero.
            if integer(words.next().ok_or(SYNTAX)?)? != 0 {
                return Err("ERR DB index is out of range".into());
            }
        } else {
            return Err(SYNTAX.into());
        }
    }
    if argv[1] == argv[2] {
        return Err("ERR source and destination objects are the same".into());
    }
    Ok(Op::Copy {
        from: argv[1].clone(),
        to: argv[2].clone(),
        replace,
    })
}

pub(super) fn scan(argv: &[Bytes]) -> Parsing {
    let cursor = number::cursor(&argv[1]).ok_or("ERR invalid cursor")?;
    let (mut count, mut kind, mut pattern) = (10, Kind::Any, None);
    for option in argv[2..].chunks(2) {
        match option {
            [word, argument] if is(word, "count") => {
                count = integer(argument)?;
                if count < 1 {
                    return Err(SYNTAX.into());
                }
            }
            [word, argument] if is(word, "match") => pattern = Some(argument.clone()),
            [word, argument] if is(word, "type") => {
                kind = match argument {
                    name if is(name, "string") => Kind::String,
                    name if is(name, "stream") => Kind::Stream,
                    _ => Kind::Other,
                };
            }
            _ => return Err(SYNTAX.into()),
        }
    }
    Ok(Op::Scan {
        cursor,
        count: count as u64,
        kind,
        pattern,
    })
}
