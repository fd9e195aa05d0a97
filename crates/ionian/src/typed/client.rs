//! A client of typed machines.

use super::form;
use super::{Machine, Typed};
use crate::{Client, Freshness, LocalReadError, Receipt, Refusal};
use std::marker::PhantomData;

/// A [`Client`] of a cluster of [`Typed`] machines. Clones share its lane.
pub struct TypedClient<M> {
    client: Client,
    machine: PhantomData<fn() -> Typed<M>>,
}

impl<M> Clone for TypedClient<M> {
    fn clone(&self) -> Self {
        TypedClient {
            client: self.client.clone(),
            machine: PhantomData,
        }
    }
}

/// Why a typed command or query has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TypedError {
    /// The cluster refused it; the refusal says whether it may have been executed.
    #[error("{0}")]
    Refused(Refusal),
    /// It cannot be encoded, and was not sent. The format needs to know the length of a sequence
    /// before its elements.
    #[error("the command cannot be encoded: {0}")]
    NotEncoded(String),
    /// The machine does not know such a command or query, and has changed nothing: it is of another
    /// type, or of an older release of your program.
    #[error("the machine does not know such a command")]
    NotUnderstood,
    /// The command was executed, but the answer cannot be encoded.
    #[error("the machine cannot encode its answer")]
    AnswerNotEncoded,
    /// The command may have been executed, but the answer is of another type: the machine is
    /// another one, or of another release of your program.
    #[error("the answer is not of the type that the machine of this client gives")]
    OtherAnswer,
}

impl From<Refusal> for TypedError {
    fn from(refusal: Refusal) -> Self {
        TypedError::Refused(refusal)
    }
}

impl<M: Machine> TypedClient<M> {
    /// A client of machines of type `Typed<M>`. If the cluster has other machines, answers are
    /// errors.
    pub fn new(client: Client) -> Self {
        TypedClient {
            client,
            machine: PhantomData,
        }
    }

    /// The client beneath, which sends bytes.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Executes a command exactly once on every replica: see [`Client::write`].
    ///
    /// # Errors
    /// When the cluster refuses the command, or it or its answer is not what the machine knows.
    pub async fn write(&self, command: &M::Command) -> Result<M::Reply, TypedError> {
        let (reply, _) = self.write_with_receipt(command).await?;
        Ok(reply)
    }

    /// As [`write`](Self::write), with a [`Receipt`]: a read after it, through any node of the
    /// cluster, sees this write.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn write_with_receipt(
        &self,
        command: &M::Command,
    ) -> Result<(M::Reply, Receipt), TypedError> {
        let request = form::command(command)?;
        let (answer, receipt) = self.client.write_with_receipt(request).await?;
        Ok((form::answered(&answer)?, receipt))
    }

    /// Has one replica answer a query: see [`Client::read`].
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn read(
        &self,
        query: &M::Query,
        freshness: impl Into<Freshness>,
    ) -> Result<M::Answer, TypedError> {
        let request = form::query(query)?;
        form::answered(&self.client.read(request, freshness).await?)
    }

    /// Reads by a closure, which a replica in this process calls with its machine: nothing is
    /// encoded. See [`Client::read_with`] for what it may do, and that it may be called more than
    /// once.
    ///
    /// # Errors
    /// As [`Client::read_with`].
    pub async fn read_with<R: Send + 'static>(
        &self,
        freshness: impl Into<Freshness>,
        read: impl Fn(&M) -> R + Send + 'static,
    ) -> Result<R, LocalReadError> {
        let read = move |machine: &Typed<M>| read(&machine.0);
        self.client.read_with(freshness, read).await
    }

    /// As [`write`](Self::write), but blocks the calling thread, which must not run an async
    /// runtime.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_blocking(&self, command: &M::Command) -> Result<M::Reply, TypedError> {
        let (reply, _) = self.write_with_receipt_blocking(command)?;
        Ok(reply)
    }

    /// As [`write_with_receipt`](Self::write_with_receipt), but blocks the calling thread, which
    /// must not run an async runtime.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_with_receipt_blocking(
        &self,
        command: &M::Command,
    ) -> Result<(M::Reply, Receipt), TypedError> {
        let request = form::command(command)?;
        let (answer, receipt) = self.client.write_with_receipt_blocking(request)?;
        Ok((form::answered(&answer)?, receipt))
    }

    /// As [`read`](Self::read), but blocks the calling thread, which must not run an async runtime.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn read_blocking(
        &self,
        query: &M::Query,
        freshness: impl Into<Freshness>,
    ) -> Result<M::Answer, TypedError> {
        let request = form::query(query)?;
        form::answered(&self.client.read_blocking(request, freshness)?)
    }

    /// As [`read_with`](Self::read_with), but blocks the calling thread, which must not run an
    /// async runtime.
    ///
    /// # Errors
    /// As [`Client::read_with`].
    pub fn read_with_blocking<R: Send + 'static>(
        &self,
        freshness: impl Into<Freshness>,
        read: impl Fn(&M) -> R + Send + 'static,
    ) -> Result<R, LocalReadError> {
        let read = move |machine: &Typed<M>| read(&machine.0);
        self.client.read_with_blocking(freshness, read)
    }
}
