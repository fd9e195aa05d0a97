//! A connection that ends if its client does not read.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// A connection on which each write must make progress within a limit.
pub(crate) struct Impatient<S> {
    stream: S,
    limit: Duration,
    /// Runs while a write waits.
    patience: Pin<Box<Sleep>>,
    waits: bool,
}

impl<S> Impatient<S> {
    pub(crate) fn new(stream: S, limit: Duration) -> Self {
        Impatient {
            stream,
            limit,
            patience: Box::pin(sleep(limit)),
            waits: false,
        }
    }

    /// The outcome of a write: an error if it has waited for too long.
    fn judge<T>(
        &mut self,
        outcome: Poll<io::Result<T>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.waits = false;
            return outcome;
        }
        if !self.waits {
            self.waits = true;
            self.patience.as_mut().reset(Instant::now() + self.limit);
        }
        let over = self.patience.as_mut().poll(context);
        over.map(|()| Err(ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Impatient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Impatient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judge(written, context)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.judge(flushed, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let closed = Pin::new(&mut self.stream).poll_shutdown(context);
        self.judge(closed, context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    const LIMIT: Duration = Duration::from_secs(15);

    #[tokio::test(start_paused = true)]
    async fn a_write_fails_when_the_client_has_read_nothing_for_the_limit() {
        let (server, mut client) = duplex(64);
        let mut server = Impatient::new(server, LIMIT);
        let begun = Instant::now();
        let write = tokio::spawn(async move { server.write_all(&[0; 1000]).await });
        // A client that reads a little, slowly, may go on.
        for _ in 0..3 {
            tokio::time::sleep(LIMIT - Duration::from_secs(1)).await;
            client.read_exact(&mut [0; 64]).await.unwrap();
        }
        let failed = tokio::time::timeout(10 * LIMIT, write)
            .await
            .expect("it ends");
        assert_eq!(failed.unwrap().unwrap_err().kind(), ErrorKind::TimedOut);
        assert_eq!(
            begun.elapsed().as_secs(),
            3 * (LIMIT.as_secs() - 1) + LIMIT.as_secs()
        );
    }
}
