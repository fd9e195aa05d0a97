//! A selector: which commands may be used, on which keys. A user has one at its root, and any
//! number of further ones in parentheses.

use super::catalog::{Bits, Category, CommandId};
use crate::kv::glob::Glob;
use bytes::Bytes;
use std::collections::BTreeMap;

/// What a command does with a key, as far as rights are concerned: bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access(u8);

impl Access {
    /// Neither shows nor changes the value, such as EXISTS.
    pub const NONE: Access = Access(0);
    /// Shows something of the value.
    pub const READ: Access = Access(1);
    /// Changes, creates or removes the value.
    pub const WRITE: Access = Access(2);
    /// Both.
    pub const BOTH: Access = Access(3);

    fn allows(self, other: Access) -> bool {
        self.0 & other.0 == other.0
    }
}

/// A pattern of keys, and what it allows to do with them.
#[derive(Clone, Debug, PartialEq)]
struct Pattern {
    access: Access,
    text: Vec<u8>,
    glob: Glob,
}

/// Why a rule is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RuleError {
    Syntax,
    Unknown,
    KeysAfterAll,
    ChannelsAfterAll,
    NoSuchPassword,
    NoHash,
    FirstArgOfSubcommand,
    NoQuota,
    QuotaValue,
}

impl RuleError {
    /// The text of Redis, which has no quotas.
    pub(super) fn text(self) -> &'static str {
        match self {
            RuleError::Syntax => "Syntax error",
            RuleError::Unknown => "Unknown command or category name in ACL",
            RuleError::KeysAfterAll => {
                "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and \
                 does not have any effect. Try 'resetkeys' to start with an empty list of patterns"
            }
            RuleError::ChannelsAfterAll => {
                "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid \
                 and does not have any effect. Try 'resetchannels' to start with an empty list of \
                 channels"
            }
            RuleError::NoSuchPassword => {
                "The password you are trying to remove from the user does not exist"
            }
            RuleError::NoHash => {
                "The password hash must be exactly 64 characters and contain only lowercase \
                 hexadecimal characters"
            }
            RuleError::FirstArgOfSubcommand => {
                "Allowing first-arg of a subcommand is not supported"
            }
            RuleError::NoQuota => {
                "The quotas are quota:connections=N, quota:commands=N, quota:bytes=N and \
                 quota:flight=N"
            }
            RuleError::QuotaValue => {
                "A quota is a number from 1 to 1099511627776, or 0 for no limit. quota:bytes is \
                 at least 16384. quota:bytes and quota:flight may have a unit, as in 10mb"
            }
        }
    }
}

/// Why a selector, or a user, does not allow a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Denied {
    /// The command itself.
    Command,
    /// The key at this place among the words.
    Key(usize),
}

/// A set of commands.
#[derive(Clone, Debug, Default, PartialEq)]
struct Commands {
    bits: Bits,
    /// Whether it began as all commands: those of later versions are in it too.
    future: bool,
}

impl Commands {
    fn all() -> Commands {
        Commands {
            bits: Bits::default().map(|_| u64::MAX),
            future: true,
        }
    }

    #[inline]
    fn contains(&self, command: CommandId) -> bool {
        self.bits[command.index() / 64] >> (command.index() % 64) & 1 == 1
    }

    fn set_one(&mut self, at: usize, value: bool) {
        let bit = 1 << (at % 64);
        match value {
            true => self.bits[at / 64] |= bit,
            false => self.bits[at / 64] &= !bit,
        }
    }

    /// Adds or removes a command with its subcommands.
    fn set(&mut self, command: CommandId, value: bool) {
        self.set_one(command.index(), value);
        for sub in command.subcommands() {
            self.set_one(usize::from(sub), value);
        }
    }

    fn set_category(&mut self, category: Category, value: bool) {
        for (bits, covered) in self.bits.iter_mut().zip(category.covered()) {
            match value {
                true => *bits |= covered,
                false => *bits &= !covered,
            }
        }
    }

    /// How many commands of the category are in it, and how many are not.
    fn count(&self, category: Category) -> (u32, u32) {
        let both = self.bits.iter().zip(category.members());
        both.fold((0, 0), |(on, off), (bits, members)| {
            let on = on + (bits & members).count_ones();
            (on, off + (!bits & members).count_ones())
        })
    }

    /// The categories that describe it best, as Redis finds them: each time the one with the fewest
    /// commands that differ, as long as more agree than differ.
    fn categories(&self) -> Vec<Category> {
        let mut rest = self.clone();
        let mut applied = Vec::new();
        loop {
            let mut best: Option<(u32, u32, Category)> = None;
            for category in Category::all().filter(|category| !applied.contains(category)) {
                let (on, off) = rest.count(category);
                let (differ, agree) = if self.future { (on, off) } else { (off, on) };
                let is_better = best.is_none_or(|(least, most, _)| {
                    differ < least || differ == least && agree > most
                });
                if agree > differ && is_better {
                    best = Some((differ, agree, category));
                }
            }
            let Some((_, _, category)) = best else {
                return applied;
            };
            rest.set_category(category, self.future);
            applied.push(category);
        }
    }
}

/// A selector.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Selector {
    commands: Commands,
    /// Of commands that are not allowed: the first arguments with which they are.
    first_args: BTreeMap<usize, Vec<Vec<u8>>>,
    all_keys: bool,
    patterns: Vec<Pattern>,
    all_channels: bool,
    channels: Vec<Vec<u8>>,
}

impl Selector {
    /// One rule about commands, keys or channels.
    pub(super) fn set(&mut self, rule: &[u8]) -> Result<(), RuleError> {
        match &*rule.to_ascii_lowercase() {
            b"allkeys" | b"~*" => (self.all_keys, self.patterns) = (true, Vec::new()),
            b"resetkeys" => (self.all_keys, self.patterns) = (false, Vec::new()),
            b"allchannels" | b"&*" => (self.all_channels, self.channels) = (true, Vec::new()),
            b"resetchannels" => (self.all_channels, self.channels) = (false, Vec::new()),
            b"allcommands" | b"+@all" => {
                (self.commands, self.first_args) = (Commands::all(), BTreeMap::new());
            }
            b"nocommands" | b"-@all" => {
                (self.commands, self.first_args) = (Commands::default(), BTreeMap::new());
            }
            _ => return self.set_special(rule),
        }
        Ok(())
    }

    fn set_special(&mut self, rule: &[u8]) -> Result<(), RuleError> {
        match rule {
            [b'~' | b'%', ..] if self.all_keys => Err(RuleError::KeysAfterAll),
            [b'~', text @ ..] => self.add_keys(Access::BOTH, text),
            [b'%', rest @ ..] => {
                let (access, text) = access(rest)?;
                self.add_keys(access, text)
            }
            [b'&', text @ ..] => self.add_channels(text),
            [sign @ (b'+' | b'-'), b'@', name @ ..] => {
                let category = Category::named(name).ok_or(RuleError::Unknown)?;
                self.commands.set_category(category, *sign == b'+');
                for command in CommandId::all().filter(|command| category.contains(*command)) {
                    self.first_args.remove(&command.index());
                }
                Ok(())
            }
            [b'+', name @ ..] => self.allow(name),
            [b'-', name @ ..] => {
                let command = CommandId::named(name).ok_or(RuleError::Unknown)?;
                self.change(command, false);
                Ok(())
            }
            _ => Err(RuleError::Syntax),
        }
    }

    fn change(&mut self, command: CommandId, value: bool) {
        self.commands.set(command, value);
        self.first_args.remove(&command.index());
    }

    /// A command, a subcommand, or a command with this first argument only.
    fn allow(&mut self, name: &[u8]) -> Result<(), RuleError> {
        let Some(bar) = name.iter().rposition(|byte| *byte == b'|') else {
            let command = CommandId::named(name).ok_or(RuleError::Unknown)?;
            self.change(command, true);
            return Ok(());
        };
        let (name_of_command, first) = (&name[..bar], &name[bar + 1..]);
        let command = CommandId::named(name_of_command).ok_or(RuleError::Unknown)?;
        if command.is_subcommand() {
            return Err(RuleError::FirstArgOfSubcommand);
        }
        if first.is_empty() {
            return Err(RuleError::Syntax);
        }
        if command.is_container() {
            let sub = CommandId::named(name).ok_or(RuleError::Unknown)?;
            self.change(sub, true);
            return Ok(());
        }
        // As in Redis, there may be anything in it. White space would end the rule where the user
        // is described.
        if has_space(first) {
            return Err(RuleError::Syntax);
        }
        let all = self.first_args.entry(command.index()).or_default();
        if !all.iter().any(|known| known.eq_ignore_ascii_case(first)) {
            all.push(first.to_vec());
        }
        Ok(())
    }

    fn add_keys(&mut self, access: Access, text: &[u8]) -> Result<(), RuleError> {
        if has_space(text) {
            return Err(RuleError::Syntax);
        }
        match self.patterns.iter_mut().find(|known| known.text == text) {
            Some(known) => known.access.0 |= access.0,
            None => self.patterns.push(Pattern {
                access,
                text: text.to_vec(),
                glob: Glob::new(text),
            }),
        }
        Ok(())
    }

    fn add_channels(&mut self, text: &[u8]) -> Result<(), RuleError> {
        if self.all_channels {
            return Err(RuleError::ChannelsAfterAll);
        }
        if has_space(text) {
            return Err(RuleError::Syntax);
        }
        if !self.channels.iter().any(|known| known == text) {
            self.channels.push(text.to_vec());
        }
        Ok(())
    }

    /// Whether the command is allowed whatever its keys are. Everything else takes a look at keys.
    #[inline]
    pub(super) fn allows_on_all_keys(&self, command: CommandId) -> bool {
        self.all_keys && self.commands.contains(command)
    }

    pub(super) fn check(
        &self,
        command: CommandId,
        words: &[Bytes],
        keys: &[(usize, Access)],
    ) -> Result<(), Denied> {
        let is_allowed = self.commands.contains(command) || command.is_free();
        if !is_allowed && !self.allows_first(command, words) {
            return Err(Denied::Command);
        }
        for (place, access) in keys {
            let may = |pattern: &Pattern| {
                pattern.access.allows(*access) && pattern.glob.matches(&words[*place])
            };
            if !self.all_keys && !self.patterns.iter().any(may) {
                return Err(Denied::Key(*place));
            }
        }
        Ok(())
    }

    fn allows_first(&self, command: CommandId, words: &[Bytes]) -> bool {
        let (Some(allowed), Some(first)) = (self.first_args.get(&command.index()), words.get(1))
        else {
            return false;
        };
        allowed
            .iter()
            .any(|known| known.eq_ignore_ascii_case(first))
    }

    /// The rules about commands: those of GETUSER.
    pub(super) fn command_rules(&self) -> Vec<Vec<u8>> {
        let categories = self.commands.categories();
        let (mut described, start, sign) = match self.commands.future {
            true => (Commands::all(), "+@all", '-'),
            false => (Commands::default(), "-@all", '+'),
        };
        let mut rules = vec![start.into()];
        for category in categories {
            described.set_category(category, sign == '+');
            rules.push(format!("{sign}@{}", category.name()).into());
        }
        for command in CommandId::all() {
            let value = self.commands.contains(command);
            if value != described.contains(command) {
                described.set(command, value);
                let sign = if value { '+' } else { '-' };
                rules.push(format!("{sign}{}", command.name()).into());
            }
            let first = self.first_args.get(&command.index());
            for first in first.into_iter().flatten().filter(|_| !value) {
                rules.push([b"+", command.name().as_bytes(), b"|", first].concat());
            }
        }
        rules
    }

    /// The rules about keys.
    pub(super) fn key_rules(&self) -> Vec<Vec<u8>> {
        if self.all_keys {
            return vec![b"~*".to_vec()];
        }
        let rule = |pattern: &Pattern| [pattern.prefix(), &pattern.text].concat();
        self.patterns.iter().map(rule).collect()
    }

    /// The rules about channels, without what resets them.
    pub(super) fn channel_rules(&self) -> Vec<Vec<u8>> {
        if self.all_channels {
            return vec![b"&*".to_vec()];
        }
        let rule = |text: &Vec<u8>| [b"&", &text[..]].concat();
        self.channels.iter().map(rule).collect()
    }

    /// All rules, as ACL LIST shows them.
    pub(super) fn rules(&self) -> Vec<Vec<u8>> {
        let mut rules = self.key_rules();
        if !self.all_channels {
            rules.push(b"resetchannels".to_vec());
        }
        rules.extend(self.channel_rules());
        rules.extend(self.command_rules());
        rules
    }

    /// Rules that make the same selector from a new one: those of ACL LIST, but a pattern of all
    /// keys is none that stands for `allkeys`.
    pub(super) fn exact_rules(&self) -> Vec<Vec<u8>> {
        let mut rules = self.rules();
        if !self.all_keys {
            rules
                .iter_mut()
                .filter(|rule| *rule == b"~*")
                .for_each(|rule| *rule = b"%RW~*".to_vec());
        }
        rules
    }
}

impl Pattern {
    fn prefix(&self) -> &'static [u8] {
        match self.access {
            Access::READ => b"%R~",
            Access::WRITE => b"%W~",
            _ => b"~",
        }
    }
}

/// What stands between `%` and `~`, and what follows.
fn access(rule: &[u8]) -> Result<(Access, &[u8]), RuleError> {
    let mut access = Access::NONE;
    let mut rest = rule;
    while let [letter, after @ ..] = rest {
        rest = after;
        let bit = match letter.to_ascii_uppercase() {
            b'R' => Access::READ,
            b'W' => Access::WRITE,
            b'~' if access != Access::NONE => break,
            _ => return Err(RuleError::Syntax),
        };
        if access.0 & bit.0 != 0 {
            return Err(RuleError::Syntax);
        }
        access.0 |= bit.0;
    }
    match access {
        Access::NONE => Err(RuleError::Syntax),
        access => Ok((access, rest)),
    }
}

/// Whether there is white space or a NUL in it.
pub(super) fn has_space(text: &[u8]) -> bool {
    text.iter().any(|byte| matches!(byte, 0 | b' ' | 9..=13))
}
