//! The state machine alone: against a model, divided, restored, and with malformed bytes.

mod behaviour;
mod kit;
mod model;
mod properties;
mod support;
mod wire;
