//! The metrics of certificates. A node without TLS has none.

use crate::definition::Kind::{Counter, Gauge};
use crate::definition::{Definition, Samples, metric};
use crate::view::View;
use ionian_runtime::status::TlsStatus;
use std::time::{SystemTime, UNIX_EPOCH};

fn tls<'a>(view: &'a View<'_>) -> Option<&'a TlsStatus> {
    view.published.as_ref()?.status.tls.as_ref()
}

/// Adds a sample for the node's certificate, and one for its authorities, if it has some.
fn each(view: &View<'_>, out: &mut Samples, read: impl Fn(&TlsStatus, bool) -> Option<f64>) {
    let Some(tls) = tls(view) else { return };
    for (what, is_authority) in [("certificate", false), ("authority", true)] {
        if let Some(value) = read(tls, is_authority) {
            out.with([what.into()], value);
        }
    }
}

/// The end of the node's certificate, or of the authority that ends first.
fn end(tls: &TlsStatus, is_authority: bool) -> Option<f64> {
    let end = match is_authority {
        false => Some(tls.certificate.not_after),
        true => tls.trusted.iter().map(|it| it.not_after).min(),
    };
    end.map(|end| end as f64)
}

/// The time, in seconds since 1970.
pub(crate) fn now() -> Option<i64> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    Some(since.as_secs() as i64)
}

/// 1 if it must be renewed.
fn near_end(tls: &TlsStatus, is_authority: bool) -> Option<f64> {
    let mut near = tls.near_end(now()?);
    let found = near.any(|(what, _)| (what == "authority") == is_authority);
    end(tls, is_authority).map(|_| f64::from(u8::from(found)))
}

pub(crate) const CERTIFICATES: &[Definition] = &[
    metric(
        Gauge,
        "ionian_tls_end_seconds",
        &["what"],
        "when the node's certificate ends, or the first of the authorities that it trusts, in \
         seconds since the beginning of 1970",
        |view, out| each(view, out, end),
    ),
    metric(
        Gauge,
        "ionian_tls_near_end",
        &["what"],
        "1 if the node's certificate must be renewed, or an authority that it trusts be replaced",
        |view, out| each(view, out, near_end),
    ),
    metric(
        Counter,
        "ionian_tls_refused_sets",
        &[],
        "new certificates that the node has refused; the old ones stay",
        |view, out| {
            if let Some(tls) = tls(view) {
                out.one(tls.refused_sets);
            }
        },
    ),
    metric(
        Counter,
        "ionian_tls_refused_callers",
        &[],
        "callers of the node's port (not of its gateway) that had no valid certificate, or not one \
         for what they wanted",
        |view, out| {
            if let Some(tls) = tls(view) {
                out.one(tls.refused_callers);
            }
        },
    ),
];
