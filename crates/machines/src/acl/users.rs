//! The table of all users, and its epoch.

use super::selector::has_space;
use super::user::User;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The user of clients that do not log in.
pub const DEFAULT: &[u8] = b"default";

/// The most users.
const MAX_USERS: usize = 10_000;

/// The most rules of one ACL SETUSER.
const MAX_RULES: usize = 10_000;

/// The most bytes of the rules of a user.
const MAX_USER_BYTES: usize = 64 << 10;

/// The most bytes of the names and rules of all users: every gateway fetches them as a whole.
const MAX_BYTES: usize = 4 << 20;

/// What stands before [`Users::begun`] among the rules of an encoded user. No user can set it.
const BEGUN: &[u8] = b"begun:";

/// The users of a cluster. A copy shares them.
#[derive(Clone, Debug, PartialEq)]
pub struct Users {
    epoch: u64,
    users: BTreeMap<Vec<u8>, Entry>,
    /// Bytes of the encoding of all users.
    bytes: usize,
}

/// A user with its encoding, which is made once: describing the rules takes long.
#[derive(Clone, Debug, PartialEq)]
struct Entry {
    user: Arc<User>,
    /// See [`Users::begun`].
    begun: u64,
    encoded: Arc<[u8]>,
}

impl Entry {
    fn new(name: &[u8], begun: u64, user: User) -> Entry {
        let mut encoded = Vec::new();
        put(&mut encoded, name);
        let mut rules = user.exact_rules();
        if begun > 0 {
            rules.push([BEGUN, begun.to_string().as_bytes()].concat());
        }
        encoded.extend_from_slice(&(rules.len() as u32).to_le_bytes());
        rules.iter().for_each(|rule| put(&mut encoded, rule));
        Entry {
            user: Arc::new(user),
            begun,
            encoded: encoded.into(),
        }
    }
}

impl Default for Users {
    fn default() -> Self {
        let default = Entry::new(DEFAULT, 0, User::unrestricted());
        Users {
            epoch: 0,
            bytes: default.encoded.len(),
            users: BTreeMap::from([(DEFAULT.to_vec(), default)]),
        }
    }
}

impl Users {
    /// How many changes there were; zero if the users are those of a new cluster.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The user with this name.
    pub fn get(&self, name: &[u8]) -> Option<&Arc<User>> {
        self.users.get(name).map(|entry| &entry.user)
    }

    /// The epoch at which the user with this name was made or last switched off. A connection that
    /// logged in before has lost its user, though there is one with the same name.
    pub fn begun(&self, name: &[u8]) -> Option<u64> {
        self.users.get(name).map(|entry| entry.begun)
    }

    /// All users by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], &User)> {
        self.users
            .iter()
            .map(|(name, entry)| (&name[..], &*entry.user))
    }

    /// Changes a user by these rules, in their order, or makes a new one by them: all, or none.
    ///
    /// # Errors
    /// The text of Redis, after `ERR`.
    pub(crate) fn set(&mut self, name: &[u8], rules: &[&[u8]]) -> Result<(), String> {
        if has_space(name) {
            return Err("Usernames can't contain spaces or null characters".into());
        }
        if rules.len() > MAX_RULES {
            return Err(format!(
                "ACL SETUSER takes at most {MAX_RULES} rules at once"
            ));
        }
        let known = self.users.get(name);
        let before = known.map_or(0, |known| known.encoded.len());
        let mut user = known.map_or_else(User::default, |known| (*known.user).clone());
        for rule in merged(rules)? {
            if rule.len() > MAX_USER_BYTES {
                return Err(format!("a rule has at most {MAX_USER_BYTES} bytes"));
            }
            user.set(&rule).map_err(|error| {
                let rule = String::from_utf8_lossy(&rule);
                format!("Error in ACL SETUSER modifier '{rule}': {}", error.text())
            })?;
        }
        if known.is_none() && self.users.len() >= MAX_USERS {
            return Err(format!("there are at most {MAX_USERS} users"));
        }
        let stays = known.filter(|known| user.is_on() || !known.user.is_on());
        let begun = stays.map_or(self.epoch + 1, |known| known.begun);
        let entry = Entry::new(name, begun, user);
        if entry.encoded.len() > MAX_USER_BYTES {
            return Err(format!(
                "the rules of a user have at most {MAX_USER_BYTES} bytes"
            ));
        }
        let bytes = self.bytes - before + entry.encoded.len();
        if bytes > MAX_BYTES {
            return Err(format!(
                "the rules of all users have at most {MAX_BYTES} bytes"
            ));
        }
        self.users.insert(name.to_vec(), entry);
        self.bytes = bytes;
        self.epoch += 1;
        Ok(())
    }

    /// Removes users, up to `default`, and returns how many there were.
    ///
    /// # Errors
    /// The text of Redis, after `ERR`, if `default` is among them; those before it are removed.
    pub(crate) fn delete(&mut self, names: &[&[u8]]) -> Result<usize, String> {
        let before = self.users.len();
        let mut refused = Ok(());
        for name in names {
            if *name == DEFAULT {
                refused = Err("The 'default' user cannot be removed".to_owned());
                break;
            }
            if let Some(removed) = self.users.remove(*name) {
                self.bytes -= removed.encoded.len();
            }
        }
        let removed = before - self.users.len();
        self.epoch += u64::from(removed > 0);
        refused.map(|()| removed)
    }

    /// The encoding in snapshots and in the answers to gateways: the epoch, the number of users, of
    /// each its name and its rules, with [`BEGUN`] among them unless it is zero. Numbers are little
    /// endian, in 64 and in 32 bits.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.epoch.to_le_bytes());
        out.extend_from_slice(&(self.users.len() as u32).to_le_bytes());
        for entry in self.users.values() {
            out.extend_from_slice(&entry.encoded);
        }
    }

    /// Takes the users from the front of `input`; `None` if they are not encoded there.
    pub fn decode(input: &mut &[u8]) -> Option<Users> {
        let mut users = Users {
            epoch: u64::from_le_bytes(take(input)?),
            users: BTreeMap::new(),
            bytes: 0,
        };
        for _ in 0..u32::from_le_bytes(take(input)?) {
            let start = *input;
            let name = take_bytes(input)?.to_vec();
            let mut begun = 0;
            let mut user = User::default();
            for _ in 0..u32::from_le_bytes(take(input)?) {
                let rule = take_bytes(input)?;
                match rule.strip_prefix(BEGUN) {
                    Some(epoch) => begun = std::str::from_utf8(epoch).ok()?.parse().ok()?,
                    None => user.set(rule).ok()?,
                }
            }
            let last = users.users.last_key_value();
            if last.is_some_and(|(last, _)| *last >= name) {
                return None;
            }
            let encoded = &start[..start.len() - input.len()];
            users.bytes += encoded.len();
            let entry = Entry {
                user: Arc::new(user),
                begun,
                encoded: encoded.into(),
            };
            users.users.insert(name, entry);
        }
        users.users.contains_key(DEFAULT).then_some(users)
    }
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

fn take<const N: usize>(input: &mut &[u8]) -> Option<[u8; N]> {
    let (head, rest) = input.split_first_chunk()?;
    *input = rest;
    Some(*head)
}

fn take_bytes<'a>(input: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = u32::from_le_bytes(take(input)?);
    let (head, rest) = input.split_at_checked(len as usize)?;
    *input = rest;
    Some(head)
}

/// Joins the words of selectors: from one that begins with a parenthesis to the one that ends with
/// the other.
fn merged(rules: &[&[u8]]) -> Result<Vec<Vec<u8>>, String> {
    let mut all = Vec::new();
    let mut open: Option<Vec<u8>> = None;
    for rule in rules {
        if rule.starts_with(b"(") && !rule.ends_with(b")") {
            // As in Redis, what was begun before is forgotten.
            open = Some(rule.to_vec());
            continue;
        }
        let word = match open.take() {
            Some(begun) => [&begun, &b" "[..], rule].concat(),
            None => {
                all.push(rule.to_vec());
                continue;
            }
        };
        match word.ends_with(b")") {
            true => all.push(word),
            false => open = Some(word),
        }
    }
    match open {
        None => Ok(all),
        Some(begun) => {
            let first = begun.split(|byte| *byte == b' ').next().unwrap_or_default();
            let first = String::from_utf8_lossy(first);
            Err(format!(
                "Unmatched parenthesis in acl selector starting at '{first}'."
            ))
        }
    }
}
