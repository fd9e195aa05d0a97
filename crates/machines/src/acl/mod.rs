//! Users, and what they may do: the access control lists of Redis 7.
//!
//! | file | job |
//! |---|---|
//! | `commands` | the commands of Redis, with their categories |
//! | `catalog` | finds commands and categories |
//! | `selector` | the rules about commands, keys and channels |
//! | `quotas` | how much of a gateway a user may take |
//! | `user` | a user: passwords, selectors and quotas |
//! | `users` | all users, and how often they were changed |
//!
//! Nothing here reads a clock or hashes: passwords come as hashes. The key-value machine keeps the
//! [`Users`] and changes them by commands in the log; gateways have copies, and judge by them
//! (`docs/decisions/0045-users-in-the-log.md`). Where the rules differ from Redis:
//!
//! - A user, its rules and all users are bounded in bytes, users and rules in number.
//! - The words inside parentheses cannot be quoted.
//! - In descriptions, single commands are in the order of their names; Redis's order differs from
//!   process to process.
//! - There are quotas, which descriptions show last, and only those that are set.

mod catalog;
mod quotas;
mod selector;
mod user;
mod users;

pub use catalog::{Category, CommandId};
pub use quotas::{Quota, Quotas};
pub use selector::{Access, Denied};
pub use user::{HASH_LEN, User};
pub use users::{DEFAULT, Users};
