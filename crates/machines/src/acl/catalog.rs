//! What rules are about: commands, subcommands and their categories.

#[path = "commands.rs"]
mod commands;

use bytes::Bytes;
use commands::{COMMANDS, NAMES};
use std::ops::Range;

/// Marks the commands that a client may use before AUTH, and every user may use.
const WITHOUT_AUTH: u32 = 1 << 31;

/// The number of commands and subcommands.
pub(super) const COUNT: usize = COMMANDS.len();

struct Entry {
    name: &'static str,
    arity: i32,
    categories: u32,
}

/// A command, or a subcommand of one. The number is its place in the table of this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandId(u16);

impl CommandId {
    /// The command with this name in lower case. In a constant, a name that is not in the table
    /// does not compile.
    ///
    /// # Panics
    /// If there is none.
    pub const fn of(name: &str) -> CommandId {
        let mut at = 0;
        while at < COMMANDS.len() {
            if is_same(COMMANDS[at].name.as_bytes(), name.as_bytes()) {
                return CommandId(at as u16);
            }
            at += 1;
        }
        panic!("the table of categories has every command");
    }

    /// The command or subcommand, such as `client|list`, in any case.
    pub fn named(name: &[u8]) -> Option<CommandId> {
        let mut lower = [0; 32];
        let lower = lower.get_mut(..name.len())?;
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        let at = COMMANDS
            .binary_search_by(|entry| entry.name.as_bytes().cmp(lower))
            .ok()?;
        Some(CommandId(at as u16))
    }

    /// The subcommand that the second word names; the command itself if it has no such one.
    #[must_use]
    pub fn with_subcommand(self, words: &[Bytes]) -> CommandId {
        let Some(word) = words.get(1).filter(|_| self.is_container()) else {
            return self;
        };
        self.subcommands()
            .map(CommandId)
            .find(|sub| word.eq_ignore_ascii_case(sub.last_word().as_bytes()))
            .unwrap_or(self)
    }

    /// Its name in lower case; that of a subcommand has the command before it: `client|list`.
    pub fn name(self) -> &'static str {
        self.entry().name
    }

    /// The name of a subcommand without the command.
    fn last_word(self) -> &'static str {
        let name = self.name();
        name.split_once('|').map_or(name, |(_, sub)| sub)
    }

    /// Whether it may have this number of words, its name included.
    pub fn takes(self, words: usize) -> bool {
        let arity = self.entry().arity;
        let least = arity.unsigned_abs() as usize;
        words == least || arity < 0 && words > least
    }

    /// Whether a client may use it before AUTH, and every user whatever its rules are.
    pub fn is_free(self) -> bool {
        self.entry().categories & WITHOUT_AUTH != 0
    }

    /// Whether the commands that this one stands for are its subcommands.
    pub fn is_container(self) -> bool {
        !self.subcommands().is_empty()
    }

    /// Whether it is a subcommand.
    pub fn is_subcommand(self) -> bool {
        self.name().contains('|')
    }

    /// All commands and subcommands.
    pub fn all() -> impl Iterator<Item = CommandId> {
        (0..COUNT as u16).map(CommandId)
    }

    /// The categories that it belongs to.
    pub fn categories(self) -> impl Iterator<Item = Category> {
        Category::all().filter(move |category| category.contains(self))
    }

    /// Whether the command is of the category `admin` or `dangerous`.
    pub fn is_privileged(self) -> bool {
        const PRIVILEGED: u32 = bit("admin") | bit("dangerous");
        self.entry().categories & PRIVILEGED != 0
    }

    pub(super) fn index(self) -> usize {
        usize::from(self.0)
    }

    #[inline]
    pub(super) fn subcommands(self) -> Range<u16> {
        let first = self.0 + 1;
        first..first + SUBCOMMANDS[self.index()]
    }

    fn entry(self) -> &'static Entry {
        &COMMANDS[self.index()]
    }
}

/// How many subcommands each command has. They follow it, with a bar in their names.
static SUBCOMMANDS: [u16; COUNT] = {
    let mut counts = [0; COUNT];
    let (mut at, mut parent) = (0, 0);
    while at < COUNT {
        match has_bar(COMMANDS[at].name.as_bytes()) {
            true => counts[parent] += 1,
            false => parent = at,
        }
        at += 1;
    }
    counts
};

/// A set of commands: a bit for each.
pub(super) type Bits = [u64; COUNT.div_ceil(64)];

/// For each category, the commands that belong to it; and these with all their subcommands.
static MEMBERS: [[Bits; 2]; NAMES.len()] = {
    let mut members = [[[0; COUNT.div_ceil(64)]; 2]; NAMES.len()];
    let mut category = 0;
    while category < NAMES.len() {
        // A subcommand follows its command, with a bar in its name.
        let (mut at, mut with_parent) = (0, false);
        while at < COUNT {
            let is_member = COMMANDS[at].categories & 1 << category != 0;
            let is_sub = has_bar(COMMANDS[at].name.as_bytes());
            if !is_sub {
                with_parent = is_member;
            }
            let bit = 1 << (at % 64);
            if is_member {
                members[category][0][at / 64] |= bit;
            }
            if is_member || is_sub && with_parent {
                members[category][1][at / 64] |= bit;
            }
            at += 1;
        }
        category += 1;
    }
    members
};

const fn has_bar(name: &[u8]) -> bool {
    let mut at = 0;
    while at < name.len() {
        if name[at] == b'|' {
            return true;
        }
        at += 1;
    }
    false
}

const fn is_same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut at = 0;
    while at < a.len() {
        if a[at] != b[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// The bit of the category with this name, which must be in [`NAMES`].
const fn bit(name: &str) -> u32 {
    let mut at = 0;
    while !is_same(NAMES[at].as_bytes(), name.as_bytes()) {
        at += 1;
    }
    1 << at
}

/// A category of commands, such as `@read`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Category(usize);

impl Category {
    /// All categories, in Redis's order.
    pub fn all() -> impl Iterator<Item = Category> {
        (0..NAMES.len()).map(Category)
    }

    /// The category with this name, in any case.
    pub fn named(name: &[u8]) -> Option<Category> {
        Category::all().find(|category| name.eq_ignore_ascii_case(category.name().as_bytes()))
    }

    /// Its name, without `@`.
    pub fn name(self) -> &'static str {
        NAMES[self.0]
    }

    /// The commands that belong to it.
    pub(super) fn members(self) -> &'static Bits {
        &MEMBERS[self.0][0]
    }

    /// The commands that a rule about it allows or forbids: these with all their subcommands.
    pub(super) fn covered(self) -> &'static Bits {
        &MEMBERS[self.0][1]
    }

    /// Whether the command belongs to it.
    pub fn contains(self, command: CommandId) -> bool {
        command.entry().categories & 1 << self.0 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_subcommands_follow_their_command() {
        assert!(COMMANDS.is_sorted_by(|a, b| a.name < b.name));
        for command in CommandId::all() {
            assert_eq!(CommandId::named(command.name().as_bytes()), Some(command));
            let has_category = command.categories().next().is_some();
            assert!(command.name().len() <= 32 && has_category != (command.name() == "ionian"));
            if let Some((parent, sub)) = command.name().split_once('|') {
                let words = [parent, sub].map(|word| Bytes::from(word.to_uppercase()));
                let parent = CommandId::of(parent);
                assert!(parent.is_container() && !command.is_container());
                assert_eq!(parent.with_subcommand(&words), command);
            }
        }
        let free: Vec<_> = CommandId::all().filter(|id| id.is_free()).collect();
        assert_eq!(free, ["auth", "hello", "quit", "reset"].map(CommandId::of));
        assert_eq!(CommandId::named(b"nothing"), None);
        assert_eq!(CommandId::named(&[b'x'; 33]), None);
    }
}
