//! Values of settings, from files and from flags.

use crate::endpoint::{self, Endpoint};
use crate::error::{DeploymentError, Place, Problem};
use crate::words::{digits, is_name, shortened};
use toml::Spanned;
use toml::de::DeValue;

const NAME: &str = "1 to 64 letters, digits, '-' and '_' in quotes";

/// A value from a file or a flag.
#[derive(Clone, Copy)]
pub(crate) enum Given<'a> {
    /// From a file, with the text of the file.
    Toml(&'a Spanned<DeValue<'a>>, &'a str),
    /// From a flag, unquoted.
    Flag(&'a str),
}

impl<'a> Given<'a> {
    pub(crate) fn text(self) -> Option<&'a str> {
        match self {
            Given::Flag(text) => Some(text),
            Given::Toml(value, _) => value.get_ref().as_str(),
        }
    }

    pub(crate) fn number(self) -> Option<u64> {
        match self {
            Given::Flag(text) => digits(text),
            Given::Toml(value, _) => {
                let integer = value.get_ref().as_integer()?;
                u64::from_str_radix(integer.as_str(), integer.radix()).ok()
            }
        }
    }

    /// The items of a list; a flag separates them by commas.
    pub(crate) fn items(self) -> Option<Vec<Given<'a>>> {
        match self {
            Given::Flag("") => Some(Vec::new()),
            Given::Flag(text) => Some(text.split(',').map(Given::Flag).collect()),
            Given::Toml(value, source) => Some(
                value
                    .get_ref()
                    .as_array()?
                    .iter()
                    .map(|item| Given::Toml(item, source))
                    .collect(),
            ),
        }
    }

    /// The error that the value is not allowed for `key`.
    pub(crate) fn wrong(self, key: &str, allowed: impl Into<String>) -> DeploymentError {
        let (value, place) = match self {
            Given::Flag(text) if digits(text).is_some() => (text.to_owned(), None),
            Given::Flag(text) => (format!("{text:?}"), None),
            Given::Toml(value, source) => {
                let written = source.get(value.span()).unwrap_or_default();
                (
                    written.to_owned(),
                    Some(Place::of(source, value.span().start)),
                )
            }
        };
        let problem = Problem::Value {
            key: key.to_owned(),
            value: shortened(&value),
            allowed: allowed.into(),
        };
        DeploymentError {
            place,
            ..problem.into()
        }
    }

    pub(crate) fn name(self, key: &str) -> Result<String, DeploymentError> {
        let name = self.text().filter(|name| is_name(name));
        name.map(str::to_owned).ok_or_else(|| self.wrong(key, NAME))
    }

    pub(crate) fn number_up_to(self, key: &str, limit: usize) -> Result<usize, DeploymentError> {
        let number = self
            .number()
            .and_then(|number| usize::try_from(number).ok())
            .filter(|number| *number <= limit);
        number.ok_or_else(|| self.wrong(key, format!("a whole number from 0 to {limit}")))
    }

    pub(crate) fn number_between(
        self,
        key: &str,
        least: usize,
        most: usize,
    ) -> Result<u64, DeploymentError> {
        let number = self
            .number()
            .filter(|number| (least as u64..=most as u64).contains(number));
        number.ok_or_else(|| self.wrong(key, format!("a whole number from {least} to {most}")))
    }

    pub(crate) fn endpoint(self, key: &str) -> Result<(&'a str, Endpoint<'a>), DeploymentError> {
        let parsed = self
            .text()
            .and_then(|text| Some((text, Endpoint::parse(text)?)));
        parsed.ok_or_else(|| self.wrong(key, endpoint::ALLOWED))
    }
}
