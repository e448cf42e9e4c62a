//! Values from columns, by their types.

use rusqlite::types::{FromSql, FromSqlResult, ValueRef};
use rusqlite::{OptionalExtension, Params, Result, Row as Columned, Statement};
use std::sync::Arc;
use tidegate_core::graph::TaskIndex;
use tidegate_core::lifecycle::{Fence, WorkerId};
use tidegate_core::limit::LimitRow;
use tidegate_core::retention::{OldRecord, OldSignal};
use tidegate_core::store::{Bytes, Counts, RequestId, RunKey, TaskKey};
use tidegate_core::want::{StoredSignal, TaskGroup};
use tidegate_core::{RunId, Timestamp};

/// A value that stands in one column.
pub(crate) trait FromColumn: Sized {
    fn from_column(value: ValueRef<'_>) -> FromSqlResult<Self>;
}

macro_rules! columns {
    ($($Type:ty = $Stored:ty: $make:expr;)+) => {$(
        impl FromColumn for $Type {
            fn from_column(value: ValueRef<'_>) -> FromSqlResult<Self> {
                <$Stored as FromSql>::column_result(value).map($make)
            }
        }
    )+};
}

columns! {
    i64 = i64: |number| number;
    i32 = i32: |number| number;
    u32 = u32: |number| number;
    u8 = u8: |number| number;
    // As it was written: numbers beyond the largest `i64` are negative.
    u64 = i64: |number| number as u64;
    bool = bool: |flag| flag;
    String = String: |text| text;
    Arc<str> = Arc<str>: |text| text;
    Bytes = Bytes: |bytes| bytes;
    Timestamp = i64: Timestamp::from_micros;
    TaskKey = i64: TaskKey;
    RunKey = i64: RunKey;
    WorkerId = i64: |number| WorkerId(number as u64);
    RequestId = i64: |number| RequestId(number as u64);
    Fence = i64: |number| Fence(number as u64);
    TaskIndex = u32: TaskIndex::from_u32;
    RunId = [u8; 16]: |id| RunId::from_u128(u128::from_be_bytes(id));
}

impl<T: FromColumn> FromColumn for Option<T> {
    fn from_column(value: ValueRef<'_>) -> FromSqlResult<Self> {
        match value {
            ValueRef::Null => Ok(None),
            value => T::from_column(value).map(Some),
        }
    }
}

/// A value as rusqlite reads it.
struct ReadValue<T>(T);

impl<T: FromColumn> FromSql for ReadValue<T> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        T::from_column(value).map(ReadValue)
    }
}

/// The value in a column.
pub(crate) fn read_at<T: FromColumn>(row: &Columned<'_>, at: usize) -> Result<T> {
    row.get(at).map(|ReadValue(value)| value)
}

/// The bytes in a column that is not NULL.
pub(crate) fn read_bytes<'r>(row: &'r Columned<'_>, at: usize) -> Result<&'r [u8]> {
    Ok(row.get_ref(at)?.as_blob()?)
}

/// A value, or several in a tuple, from the first columns of a row.
pub(crate) trait FromColumns: Sized {
    fn from_columns(row: &Columned<'_>) -> Result<Self>;
}

impl<T: FromColumn> FromColumns for T {
    fn from_columns(row: &Columned<'_>) -> Result<Self> {
        read_at(row, 0)
    }
}

macro_rules! tuples {
    ($(($($T:ident $at:literal),+);)+) => {$(
        impl<$($T: FromColumn),+> FromColumns for ($($T,)+) {
            fn from_columns(row: &Columned<'_>) -> Result<Self> {
                Ok(($(read_at(row, $at)?,)+))
            }
        }
    )+};
}

tuples! {
    (A 0, B 1);
    (A 0, B 1, C 2);
    (A 0, B 1, C 2, D 3);
    (A 0, B 1, C 2, D 3, E 4);
    (A 0, B 1, C 2, D 3, E 4, F 5);
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6);
}

macro_rules! structs {
    ($($Type:ident { $($field:ident)+ })+) => {$(
        impl FromColumns for $Type {
            fn from_columns(row: &Columned<'_>) -> Result<Self> {
                let mut columns = 0..;
                $(let $field = read_at(row, columns.next().unwrap_or_default())?;)+
                Ok($Type { $($field),+ })
            }
        }
    )+};
}

structs! {
    Counts { ready future paused limited parked running }
    LimitRow { in_use window_sum overtaken_task overtakes alarm }
    OldRecord { seq at run run_ended_at }
    OldSignal { number sent_at is_run_ended is_receiver_open }
    StoredSignal { number run name taken_by }
    TaskGroup { queue workflow task weight }
}

/// Reading rows of which the type says how.
pub(crate) trait Fetch {
    /// The only row.
    fn fetch_one<T: FromColumns>(&mut self, given: impl Params) -> Result<T>;

    /// The first row, if there is one.
    fn fetch_first<T: FromColumns>(&mut self, given: impl Params) -> Result<Option<T>> {
        self.fetch_one(given).optional()
    }

    /// All rows.
    fn fetch_all<T: FromColumns, C: FromIterator<T>>(&mut self, given: impl Params) -> Result<C>;
}

impl Fetch for Statement<'_> {
    fn fetch_one<T: FromColumns>(&mut self, given: impl Params) -> Result<T> {
        self.query_row(given, T::from_columns)
    }

    fn fetch_all<T: FromColumns, C: FromIterator<T>>(&mut self, given: impl Params) -> Result<C> {
        self.query_map(given, T::from_columns)?.collect()
    }
}
