//! A user: whether it may log in and how, and what it may do.

use super::catalog::CommandId;
use super::quotas::Quotas;
use super::selector::{Access, Denied, RuleError, Selector, has_space};
use bytes::Bytes;

/// The characters of a hash of a password: SHA-256 in hexadecimal digits.
pub const HASH_LEN: usize = 64;

/// A user. Of passwords there are only hashes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct User {
    is_on: bool,
    nopass: bool,
    sanitizes: Option<bool>,
    passwords: Vec<Vec<u8>>,
    root: Selector,
    others: Vec<Selector>,
    quotas: Quotas,
}

impl User {
    /// The user `default` of a cluster whose users were never changed: it may do everything.
    pub(super) fn unrestricted() -> User {
        let mut user = User::default();
        for rule in ["on", "nopass", "~*", "&*", "+@all"] {
            user.set(rule.as_bytes()).expect("a rule");
        }
        user
    }

    /// Whether it may log in.
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// Whether every password is right.
    pub fn is_without_password(&self) -> bool {
        self.nopass
    }

    /// The hashes of its passwords, [`HASH_LEN`] characters each.
    pub fn hashes(&self) -> &[Vec<u8>] {
        &self.passwords
    }

    /// How much of a gateway it may take.
    pub fn quotas(&self) -> Quotas {
        self.quotas
    }

    /// Whether the user may execute the command with these words. `keys` lists the places of the
    /// keys among them; it is called only if that matters.
    ///
    /// # Errors
    /// What it lacks. With several selectors, as in Redis: the last key that no selector allows, if
    /// any allows the command.
    #[inline]
    pub fn check(
        &self,
        command: CommandId,
        words: &[Bytes],
        keys: impl FnOnce() -> Vec<(usize, Access)>,
    ) -> Result<(), Denied> {
        if self.root.allows_on_all_keys(command) {
            return Ok(());
        }
        self.check_selectors(command, words, keys)
    }

    /// Whether the user may execute every command, whatever its keys.
    pub fn may_do_all(&self) -> bool {
        CommandId::all().all(|command| self.root.allows_on_all_keys(command))
    }

    /// Apart, so that [`check`](Self::check) is two tests of bits for a user with all keys.
    #[inline(never)]
    fn check_selectors(
        &self,
        command: CommandId,
        words: &[Bytes],
        keys: impl FnOnce() -> Vec<(usize, Access)>,
    ) -> Result<(), Denied> {
        let keys = &*keys();
        let mut denied = Denied::Command;
        for selector in std::iter::once(&self.root).chain(&self.others) {
            match selector.check(command, words, keys) {
                Ok(()) => return Ok(()),
                Err(why) => denied = denied.max(why),
            }
        }
        Err(denied)
    }

    /// Changes the user by one rule.
    pub(super) fn set(&mut self, rule: &[u8]) -> Result<(), RuleError> {
        match &*rule.to_ascii_lowercase() {
            b"" => {}
            b"on" => self.is_on = true,
            b"off" => self.is_on = false,
            b"skip-sanitize-payload" => self.sanitizes = Some(false),
            b"sanitize-payload" => self.sanitizes = Some(true),
            b"nopass" => (self.nopass, self.passwords) = (true, Vec::new()),
            b"resetpass" => (self.nopass, self.passwords) = (false, Vec::new()),
            b"clearselectors" => self.others = Vec::new(),
            b"reset" => {
                *self = User {
                    sanitizes: Some(true),
                    ..User::default()
                }
            }
            b"resetquota" => self.quotas = Quotas::default(),
            lower if lower.starts_with(b"quota:") => return self.quotas.set(&lower[6..]),
            _ => return self.set_special(rule),
        }
        Ok(())
    }

    fn set_special(&mut self, rule: &[u8]) -> Result<(), RuleError> {
        match rule {
            [b'#', hash @ ..] => {
                let hash = checked(hash)?;
                if !self.passwords.contains(&hash) {
                    self.passwords.push(hash);
                }
                self.nopass = false;
            }
            [b'!', hash @ ..] => {
                let hash = checked(hash)?;
                let place = self.passwords.iter().position(|known| *known == hash);
                self.passwords
                    .remove(place.ok_or(RuleError::NoSuchPassword)?);
            }
            [b'(', rules @ .., b')'] => {
                // Redis has a syntax of quotes here.
                if rules.iter().any(|byte| matches!(byte, b'"' | b'\'')) {
                    return Err(RuleError::Syntax);
                }
                let mut selector = Selector::default();
                let mut rules = rules.split(|byte| has_space(&[*byte]));
                rules.try_for_each(|rule| match rule {
                    [] => Ok(()),
                    rule => selector.set(rule),
                })?;
                self.others.push(selector);
            }
            _ => return self.root.set(rule),
        }
        Ok(())
    }

    /// The words before the selectors.
    pub fn flags(&self) -> Vec<&'static str> {
        let flags = [
            (self.is_on, "on"),
            (!self.is_on, "off"),
            (self.nopass, "nopass"),
            (self.sanitizes == Some(false), "skip-sanitize-payload"),
            (self.sanitizes == Some(true), "sanitize-payload"),
        ];
        let set = flags.into_iter().filter(|(is_set, _)| *is_set);
        set.map(|(_, name)| name).collect()
    }

    /// The user in one line, as ACL LIST shows it after the name.
    pub fn describe(&self) -> Vec<u8> {
        self.rules(Selector::rules).join(&b' ')
    }

    /// Rules that make the same user from a new one.
    pub(super) fn exact_rules(&self) -> Vec<Vec<u8>> {
        self.rules(Selector::exact_rules)
    }

    fn rules(&self, of: impl Fn(&Selector) -> Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        let flags = self.flags().into_iter().map(|flag| flag.into());
        let hashes = self.passwords.iter();
        let hashes = hashes.map(|hash| [b"#", &hash[..]].concat());
        let others = self.others.iter();
        let others = others.map(|other| [b"(", &of(other).join(&b' ')[..], b")"].concat());
        let root = of(&self.root);
        let rules = flags.chain(hashes).chain(root).chain(others);
        rules.chain(self.quotas.rules()).collect()
    }

    /// The rules of each selector about commands, keys and channels, as ACL GETUSER shows them; the
    /// root is the first.
    pub fn selectors(&self) -> Vec<[Vec<u8>; 3]> {
        let all = std::iter::once(&self.root).chain(&self.others);
        let parts = |it: &Selector| [it.command_rules(), it.key_rules(), it.channel_rules()];
        all.map(|it| parts(it).map(|rules| rules.join(&b' ')))
            .collect()
    }
}

/// A hash that is one.
fn checked(hash: &[u8]) -> Result<Vec<u8>, RuleError> {
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    match hash.len() == HASH_LEN && hash.iter().all(is_digit) {
        true => Ok(hash.to_vec()),
        false => Err(RuleError::NoHash),
    }
}
