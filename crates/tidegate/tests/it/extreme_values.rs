//! Values for settings: the ends of their range, where clocks overflow, and some that are different every
//! time. Nothing lasts for long with them: a duration is below a millisecond or beyond a hundred years.

use std::ops::RangeInclusive;
use std::sync::LazyLock;
use std::time::Duration;

fn pick_seconds(range: RangeInclusive<u64>) -> Duration {
    Duration::from_secs(fastrand::u64(range))
}

pub(crate) static DURATIONS: LazyLock<[Duration; 12]> = LazyLock::new(|| {
    [
        Duration::ZERO,
        Duration::from_nanos(1),
        Duration::from_micros(1),
        Duration::from_secs(3_333_333_333),
        Duration::from_micros(i64::MAX.unsigned_abs()),
        Duration::from_secs(i64::MAX.unsigned_abs()),
        Duration::from_secs(u64::MAX),
        Duration::MAX,
        Duration::from_nanos(fastrand::u64(2..1_000)),
        Duration::from_nanos(fastrand::u64(1_000..1_000_000)),
        pick_seconds(3_333_333_333..=i64::MAX.unsigned_abs()),
        pick_seconds(i64::MAX.unsigned_abs()..=u64::MAX),
    ]
});

pub(crate) static COUNTS: LazyLock<[u32; 7]> = LazyLock::new(|| {
    [0, 1, 77, u32::MAX - 1, u32::MAX, fastrand::u32(2..100_000), fastrand::u32(100_000..)]
});

pub(crate) static PRIORITIES: LazyLock<[i32; 7]> =
    LazyLock::new(|| [i32::MIN, -1, 0, 1, i32::MAX, fastrand::i32(..0), fastrand::i32(0..)]);

/// In microseconds: long ago, or centuries away.
pub(crate) static INSTANTS: LazyLock<[i64; 7]> = LazyLock::new(|| {
    let (past, far) = (fastrand::i64(..0), fastrand::i64(FAR_FUTURE..));
    [i64::MIN, -1, 0, 1_700_000_000_000_000, i64::MAX, past, far]
});

/// From here on an instant of [`INSTANTS`] is still to come.
pub(crate) const FAR_FUTURE: i64 = 10_000_000_000_000_000;
