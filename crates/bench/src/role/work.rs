//! What a role is given to do.

pub(crate) use crate::model::demand::Kind as Work;
use crate::model::demand::ROLES;

/// What a role can be given; nothing if it is none that can be measured alone.
pub(crate) fn of(role: &str) -> &'static [Work] {
    ROLES
        .iter()
        .find(|(known, _)| *known == role)
        .map_or(&[], |(_, works)| works)
}
