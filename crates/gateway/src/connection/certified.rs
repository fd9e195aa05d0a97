//! A client whose certificate names its user.
//!
//! The user is looked up among the users of now, as that of AUTH is: the gateway's copy may lack
//! one that another gateway has made. So the connection asks the cluster when it begins, and no
//! command is judged before the answer has come. Without a quorum commands get an error.

use super::Connection;
use ionian_kernel::client::{ReadLevel, Refusal};

impl Connection {
    /// The certificate of the client names this user.
    pub fn certify(&mut self, user: &str) {
        self.host.certify(&self.client, user);
        self.look_up_user();
    }

    /// Asks for the users of now, if that user was not looked up. As long as the gateway knows no
    /// users it asks for itself, and calls this when it has the answer; commands ask before.
    pub(crate) fn look_up_user(&mut self) {
        let rights = &self.host.rights;
        let may_ask = rights.are_checked() && rights.users().is_some() && self.is_idle();
        if may_ask && !self.closing && self.client.looks_up_user.get() {
            self.fetch_users(ReadLevel::Linearizable);
        }
    }

    /// The users of now were learned for that, or could not be.
    pub(super) fn on_user_looked_up(&mut self, learned: Result<(), Refusal>) {
        match learned {
            Ok(()) => {
                if let Err(why) = self.host.log_in_by_certificate(&self.client) {
                    self.close_for(format_args!("{why}"));
                }
            }
            Err(refusal) if self.stalled => self.fetched.refusal = Some(refusal),
            // No command waits that could get the error. The next one asks again.
            Err(_) => {}
        }
    }
}
