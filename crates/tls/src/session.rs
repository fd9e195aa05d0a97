//! The encryption of one connection whose socket never waits.
//!
//! A burst stays one system call in each direction: what is written is encrypted into records that
//! go to the socket together, and what has arrived is decrypted after one read. (The streams of
//! `tokio-rustls` read 4 KiB at a time and have no vectored read.)

use rustls::Connection;
use std::cell::RefCell;
use std::io::{self, BufRead, ErrorKind, IoSlice, Write};
use tokio::net::tcp::OwnedWriteHalf;

/// How many bytes may be encrypted and not yet written. More than that stays with the caller.
const SEALED_LIMIT: usize = 256 << 10;

/// See the top of this file. The halves of a connection share it.
#[derive(Debug)]
pub struct Session(RefCell<Connection>);

impl Session {
    /// The encryption of a connection after its handshake.
    pub fn new(mut connection: Connection) -> Self {
        connection.set_buffer_limit(Some(SEALED_LIMIT));
        Session(RefCell::new(connection))
    }

    /// Decrypts bytes that have arrived, and passes what is in them to `sink`. Call it once without
    /// bytes: some may have arrived behind the handshake.
    ///
    /// # Errors
    /// If they are not what the other side has sent.
    pub fn open(&self, mut arrived: &[u8], mut sink: impl FnMut(&[u8])) -> io::Result<()> {
        let session = &mut *self.0.borrow_mut();
        loop {
            // `rustls` takes in 4 KiB at a time, and nothing while decrypted bytes wait.
            if !arrived.is_empty() {
                session.read_tls(&mut arrived)?;
            }
            let processed = session.process_new_packets();
            drain(session, &mut sink)?;
            processed.map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
            if arrived.is_empty() {
                return Ok(());
            }
        }
    }

    /// Encrypts bytes and writes the records to the socket, if earlier ones are written. Returns
    /// how many bytes were encrypted: all up to a limit, even if the socket took no record.
    ///
    /// # Errors
    /// `WouldBlock` if earlier records are left, and errors of the socket.
    pub fn write(&self, slices: &[IoSlice<'_>], socket: &OwnedWriteHalf) -> io::Result<usize> {
        let session = &mut *self.0.borrow_mut();
        flush(session, socket)?;
        let count = session.writer().write_vectored(slices)?;
        match flush(session, socket) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(count),
        }
    }

    /// Writes the records that are left.
    ///
    /// # Errors
    /// `WouldBlock` if some stay, and errors of the socket.
    pub fn flush(&self, socket: &OwnedWriteHalf) -> io::Result<()> {
        flush(&mut self.0.borrow_mut(), socket)
    }

    /// Whether records are left.
    pub fn has_records(&self) -> bool {
        self.0.borrow().wants_write()
    }

    /// Adds the record that ends this direction in order.
    pub fn close(&self) {
        self.0.borrow_mut().send_close_notify();
    }
}

fn drain(session: &mut Connection, sink: &mut impl FnMut(&[u8])) -> io::Result<()> {
    loop {
        let mut reader = session.reader();
        let count = match reader.fill_buf() {
            Ok([]) => return Ok(()),
            Ok(bytes) => {
                sink(bytes);
                bytes.len()
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        };
        reader.consume(count);
    }
}

fn flush(session: &mut Connection, socket: &OwnedWriteHalf) -> io::Result<()> {
    while session.wants_write() {
        session.write_tls(&mut Socket(socket))?;
    }
    Ok(())
}

/// A socket that does not wait: all records of a burst in one call.
struct Socket<'a>(&'a OwnedWriteHalf);

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
