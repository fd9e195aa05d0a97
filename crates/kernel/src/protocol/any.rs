//! A protocol without its type: what operators and drivers ask of it, which does not depend on the
//! types of its messages and roles.

use super::{Description, Protocol, Transition};
use crate::id::{Epoch, SessionId, Slot};
use crate::layout::{Address, Layout, LayoutError};
use crate::machine::RestoreError;
use crate::salvage::Salvage;
use crate::service::Service;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;
use core::marker::PhantomData;

/// A protocol without its type. Each function is that of [`Protocol`] with the same name, and takes
/// a layout where that takes the protocol's configuration.
#[expect(
    clippy::missing_errors_doc,
    reason = "the errors are those of the functions of Protocol, and that a layout is none of it"
)]
pub trait AnyProtocol: Send + Sync {
    /// Its names and tables.
    fn description(&self) -> &'static Description;
    /// Checks that a layout is a deployment of this protocol.
    fn configure(&self, layout: Layout) -> Result<(), LayoutError>;
    /// See [`Protocol::cautions`].
    fn cautions(&self, layout: Layout) -> Result<Vec<String>, LayoutError>;
    /// See [`Protocol::transition`].
    fn transition(&self, from: &Layout, to: &Layout) -> Result<Transition, LayoutError>;
    /// See [`Protocol::check_tunable`].
    fn check_tunable(&self) -> Result<(), LayoutError>;
    /// See [`Protocol::check_level`].
    fn check_level(&self) -> Result<(), LayoutError>;
    /// See [`Protocol::check_lowering`].
    fn check_lowering(&self) -> Result<(), LayoutError>;
    /// See [`Protocol::service`].
    fn service(&self, layout: Layout, epoch: Epoch) -> Result<Service, LayoutError>;
    /// See [`Protocol::founding_records`].
    fn founding_records(
        &self,
        layout: Layout,
        at: Address,
        slot: Slot,
    ) -> Result<Vec<Vec<u8>>, LayoutError>;
    /// See [`Protocol::salvage`].
    fn salvage(&self) -> Result<Box<dyn Salvage>, LayoutError>;
    /// See [`Protocol::state_in`].
    fn state_in(&self, stored: &Bytes) -> Result<Bytes, RestoreError>;
    /// See [`Protocol::executed_in`].
    fn executed_in(
        &self,
        stored: &Bytes,
        stamp: Slot,
        session: SessionId,
    ) -> Result<Slot, RestoreError>;
}

/// The protocol `P` without its type.
pub const fn any<P: Protocol>() -> &'static dyn AnyProtocol {
    const { &Erased::<P>(PhantomData) }
}

struct Erased<P>(PhantomData<fn() -> P>);

impl<P: Protocol> AnyProtocol for Erased<P> {
    fn description(&self) -> &'static Description {
        const { &Description::of::<P>() }
    }
    fn configure(&self, layout: Layout) -> Result<(), LayoutError> {
        P::configure(layout).map(drop)
    }
    fn cautions(&self, layout: Layout) -> Result<Vec<String>, LayoutError> {
        Ok(P::cautions(&P::configure(layout)?))
    }
    fn transition(&self, from: &Layout, to: &Layout) -> Result<Transition, LayoutError> {
        P::transition(from, to)
    }
    fn check_tunable(&self) -> Result<(), LayoutError> {
        P::check_tunable()
    }
    fn check_level(&self) -> Result<(), LayoutError> {
        P::check_level()
    }
    fn check_lowering(&self) -> Result<(), LayoutError> {
        P::check_lowering()
    }
    fn service(&self, layout: Layout, epoch: Epoch) -> Result<Service, LayoutError> {
        Ok(P::service(&P::configure(layout)?, epoch))
    }
    fn founding_records(
        &self,
        layout: Layout,
        at: Address,
        slot: Slot,
    ) -> Result<Vec<Vec<u8>>, LayoutError> {
        Ok(P::founding_records(&P::configure(layout)?, at, slot))
    }
    fn salvage(&self) -> Result<Box<dyn Salvage>, LayoutError> {
        P::salvage()
    }
    fn state_in(&self, stored: &Bytes) -> Result<Bytes, RestoreError> {
        P::state_in(stored)
    }
    fn executed_in(
        &self,
        stored: &Bytes,
        stamp: Slot,
        session: SessionId,
    ) -> Result<Slot, RestoreError> {
        P::executed_in(stored, stamp, session)
    }
}
