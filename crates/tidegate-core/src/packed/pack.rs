//! The bytes of packed columns.
//!
//! Unsigned numbers have seven bits to a byte, the lowest first, and the highest bit of a byte says that
//! another follows. Signed ones are folded onto them, so that small ones of both signs are short. A time
//! is a signed difference to the time before it in the same column, in microseconds; a text is its
//! length in bytes and its bytes; an id is sixteen bytes.

use crate::Timestamp;
use crate::rows::Corrupt;

/// Writes a packed column.
pub(super) struct PackWriter {
    bytes: Vec<u8>,
    last_time: i64,
}

impl PackWriter {
    pub(super) fn new(version: u8) -> Self {
        let mut bytes = Vec::with_capacity(32);
        bytes.push(version);
        PackWriter { bytes, last_time: 0 }
    }

    pub(super) fn put_number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.bytes.push(number as u8);
    }

    pub(super) fn put_signed(&mut self, number: i64) {
        self.put_number(((number << 1) ^ (number >> 63)) as u64);
    }

    pub(super) fn put_time(&mut self, time: Timestamp) {
        let micros = time.as_micros();
        self.put_signed(micros.wrapping_sub(self.last_time));
        self.last_time = micros;
    }

    pub(super) fn put_text(&mut self, text: &str) {
        self.put_number(text.len() as u64);
        self.bytes.extend_from_slice(text.as_bytes());
    }

    pub(super) fn put_id(&mut self, id: u128) {
        self.bytes.extend_from_slice(&id.to_be_bytes());
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// Reads a packed column. Bytes that no [`PackWriter`] wrote are an error, never a panic.
pub(super) struct PackReader<'b> {
    rest: &'b [u8],
    last_time: i64,
}

impl<'b> PackReader<'b> {
    pub(super) fn new(bytes: &'b [u8], version: u8) -> Result<Self, Corrupt> {
        match bytes.split_first() {
            Some((first, rest)) if *first == version => Ok(PackReader { rest, last_time: 0 }),
            _ => Err(Corrupt),
        }
    }

    pub(super) fn take_number(&mut self) -> Result<u64, Corrupt> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.rest.split_first().ok_or(Corrupt)?;
            self.rest = rest;
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has room for one bit.
            if shift == 63 && bits > 1 {
                return Err(Corrupt);
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Corrupt)
    }

    pub(super) fn take_u32(&mut self) -> Result<u32, Corrupt> {
        u32::try_from(self.take_number()?).map_err(|_| Corrupt)
    }

    pub(super) fn take_u8(&mut self) -> Result<u8, Corrupt> {
        u8::try_from(self.take_number()?).map_err(|_| Corrupt)
    }

    pub(super) fn take_signed(&mut self) -> Result<i64, Corrupt> {
        let folded = self.take_number()?;
        Ok((folded >> 1) as i64 ^ -((folded & 1) as i64))
    }

    pub(super) fn take_time(&mut self) -> Result<Timestamp, Corrupt> {
        self.last_time = self.last_time.wrapping_add(self.take_signed()?);
        Ok(Timestamp::from_micros(self.last_time))
    }

    pub(super) fn take_text(&mut self) -> Result<String, Corrupt> {
        let length = usize::try_from(self.take_number()?).map_err(|_| Corrupt)?;
        let (text, rest) = self.rest.split_at_checked(length).ok_or(Corrupt)?;
        self.rest = rest;
        str::from_utf8(text).map(str::to_owned).map_err(|_| Corrupt)
    }

    pub(super) fn take_id(&mut self) -> Result<u128, Corrupt> {
        let (id, rest) = self.rest.split_first_chunk().ok_or(Corrupt)?;
        self.rest = rest;
        Ok(u128::from_be_bytes(*id))
    }

    /// Takes an optional value, if it is there.
    pub(super) fn take_if<T>(
        &mut self,
        is_there: bool,
        take: impl FnOnce(&mut Self) -> Result<T, Corrupt>,
    ) -> Result<Option<T>, Corrupt> {
        if is_there { take(self).map(Some) } else { Ok(None) }
    }

    /// Checks that nothing is left.
    pub(super) fn check_end(self) -> Result<(), Corrupt> {
        if self.rest.is_empty() { Ok(()) } else { Err(Corrupt) }
    }
}
