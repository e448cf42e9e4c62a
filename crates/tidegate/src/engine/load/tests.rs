//! What is made of the texts of a system: real ones, odd ones, and none.

use super::*;
use std::collections::HashMap;

const STAT: &str = "\
cpu  4707058 36900 587038 3621169 38267 0 8299 11890 0 0
cpu0 2279915 19949 276416 1917072 7892 0 554 6020 0 0
cpu1 2427143 16951 310621 1704097 30374 0 7744 5870 0 0
intr 181 0 9 0 0
ctxt 991
btime 1794000000
softirq 7 0 1
";

const MEMINFO: &str = "\
MemTotal:       24682416 kB
MemFree:         4796868 kB
MemAvailable:   12341208 kB
Buffers:           84204 kB
HugePages_Total:       0
";

const SELF_STAT: &str = "15062 (a) R (b) S 15050 15050 13214 0 -1 4194304 101 0 0 0 250 50 0 0 20 0 1 \
    0 4535455 3133440 412 18446744073709551615 0 0 0";

const STATUS: &str = "Name:\tcat\nVmPeak:\t    3060 kB\nVmRSS:\t    1648 kB\nThreads:\t1\n";

const MOUNTS: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:4 master:1 - cgroup2 cgroup2 rw
";

const CGROUP: &str = "4:memory:/process/d07f\n1:cpu:/\n0::/app.slice/jobs.service\n";

const GROUP: &str = "/sys/fs/cgroup/unified/app.slice/jobs.service";

/// A file system of these files.
struct Files(HashMap<String, String>);

impl Files {
    fn new(files: &[(&str, &str)]) -> Self {
        Files(files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect())
    }

    /// A machine of two processors and 24 GB, and no limits.
    fn machine() -> Self {
        Files::new(&[
            ("/proc/stat", STAT),
            ("/proc/meminfo", MEMINFO),
            ("/proc/self/stat", SELF_STAT),
            ("/proc/self/status", STATUS),
            ("/proc/self/mountinfo", MOUNTS),
            ("/proc/self/cgroup", CGROUP),
            ("/proc/pressure/cpu", "some avg10=12.50 avg60=0.50 avg300=3.82 total=13085815496\n"),
            ("/proc/pressure/io", "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"),
        ])
    }

    fn with(mut self, path: &str, text: &str) -> Self {
        self.0.insert(path.to_owned(), text.to_owned());
        self
    }
}

/// What a meter says of two moments, two seconds apart.
fn measured(first: &Files, second: &Files) -> (Sample, Sample) {
    let (mut meter, now) = (Meter::default(), Instant::now());
    let at = Timestamp::from_micros(7);
    let first = meter.measure(at, now, |path| first.0.get(path).cloned());
    let later = now + Duration::from_secs(2);
    (first, meter.measure(at, later, |path| second.0.get(path).cloned()))
}

#[test]
fn a_machine_without_limits_is_as_large_as_it_is() {
    // 100 ticks more of both processors busy, of 400.
    let stat = STAT.replace("cpu  4707058", "cpu  4707158").replace(" 3621169 ", " 3621469 ");
    let own = SELF_STAT.replace(" 250 50 ", " 300 100 ");
    let later = Files::machine().with("/proc/stat", &stat).with("/proc/self/stat", &own);
    let (first, second) = measured(&Files::machine(), &later);
    assert_eq!((first.process.cpu, first.machine.cpu), (None, None), "there is nothing before it");
    assert_eq!(first.process.memory, Some(1_648 << 10));
    assert_eq!(
        (first.machine.cores, first.machine.memory_max),
        (Some(2.0), Some(24_682_416 << 10))
    );
    assert_eq!(first.machine.memory, Some(0.5));
    let pressure = first.pressure.unwrap();
    assert_eq!((pressure.cpu, pressure.memory, pressure.io), (Some(0.125), None, Some(0.0)));
    assert_eq!(second.process.cpu, Some(0.5), "a second in two");
    assert_eq!(second.machine.cpu, Some(0.25));
}

#[test]
fn in_a_container_the_machine_is_as_large_as_its_limit() {
    let limited = || {
        Files::machine()
            .with(&format!("{GROUP}/cpu.max"), "50000 100000\n")
            .with(&format!("{GROUP}/cpu.stat"), "usage_usec 1000000\nuser_usec 7\n")
            .with(&format!("{GROUP}/memory.max"), "1073741824\n")
            .with(&format!("{GROUP}/memory.current"), "805306368\n")
            .with(&format!("{GROUP}/memory.stat"), "anon 1\ninactive_file 268435456\nfile 2\n")
            .with(
                &format!("{GROUP}/cpu.pressure"),
                "some avg10=99.00 avg60=1.00\nfull avg10=1.00\n",
            )
            .with("/sys/fs/cgroup/unified/app.slice/cpu.max", "max 100000\n")
            .with("/sys/fs/cgroup/unified/app.slice/memory.max", "max\n")
    };
    let later = limited().with(&format!("{GROUP}/cpu.stat"), "usage_usec 1750000\n");
    let (first, second) = measured(&limited(), &later);
    assert_eq!((first.machine.cores, first.machine.memory_max), (Some(0.5), Some(1 << 30)));
    assert_eq!(first.machine.memory, Some(0.5), "what can be had back at once is not in use");
    assert_eq!(first.pressure.unwrap().cpu, Some(0.99), "its own");
    assert_eq!(first.pressure.unwrap().io, Some(0.0), "the machine's, where it has none");
    assert_eq!(second.machine.cpu, Some(0.75));
}

#[test]
fn the_tightest_of_the_limits_around_counts_and_one_larger_than_the_machine_does_not() {
    let around = "/sys/fs/cgroup/unified/app.slice";
    let files = || {
        Files::machine()
            .with(&format!("{GROUP}/cpu.max"), "190000 100000\n")
            .with(&format!("{around}/cpu.max"), "150000 100000\n")
            .with(&format!("{around}/cpu.stat"), "usage_usec 0\n")
            .with(&format!("{GROUP}/memory.max"), "99999999999999\n")
            .with(&format!("{GROUP}/memory.current"), "7\n")
    };
    let (first, second) =
        measured(&files(), &files().with(&format!("{around}/cpu.stat"), "usage_usec 3000000\n"));
    assert_eq!(first.machine.cores, Some(1.5));
    assert_eq!(
        (first.machine.memory_max, first.machine.memory),
        (Some(24_682_416 << 10), Some(0.5))
    );
    assert_eq!(second.machine.cpu, Some(1.0));
    // The limit has moved to another group between two readings: they cannot be compared.
    let moved = files().with(&format!("{GROUP}/cpu.max"), "10000 100000\n");
    let moved = moved.with(&format!("{GROUP}/cpu.stat"), "usage_usec 9\n");
    assert_eq!(measured(&files(), &moved).1.machine.cpu, None);
}

#[test]
fn a_group_is_found_from_inside_a_container_too() {
    let found = |cgroup: &str, mounts: &str| {
        let files = Files::new(&[("/proc/self/cgroup", cgroup), ("/proc/self/mountinfo", mounts)]);
        groups(|path| files.0.get(path).cloned())
    };
    let mount = |root: &str| format!("9 1 0:26 {root} /sys/fs/cgroup ro - cgroup2 cgroup2 rw");
    assert_eq!(found("0::/\n", &mount("/")), ["/sys/fs/cgroup"]);
    assert_eq!(
        found("0::/a/b\n", &mount("/")),
        ["/sys/fs/cgroup/a/b", "/sys/fs/cgroup/a", "/sys/fs/cgroup"]
    );
    // Only a part of the tree is seen.
    assert_eq!(found("0::/docker/7\n", &mount("/docker/7")), ["/sys/fs/cgroup"]);
    let none: [&str; 0] = [];
    assert_eq!(found("0::/docker/77\n", &mount("/docker/7")), none);
    assert_eq!(found("0::/../other\n", &mount("/")), none, "it leads out");
    assert_eq!(found("0::nowhere\n", &mount("/")), none);
    assert_eq!(found("4:memory:/a\n", &mount("/")), none, "version 1 alone");
    assert_eq!(found("0::/a\n", "9 1 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs rw"), none);
    assert_eq!(found("0::/a\n", "- cgroup2\n\n9 - cgroup2\n"), none);
    assert_eq!(found(&format!("0::{}", "/a".repeat(9_999)), &mount("/")).len(), LEVELS_MAX);
}

#[test]
fn where_nothing_can_be_read_nothing_is_known() {
    let at = Timestamp::from_micros(7);
    let (first, second) = measured(&Files::new(&[]), &Files::new(&[]));
    assert_eq!((first, second), (Sample::new(at), Sample::new(at)));
}

#[test]
fn what_makes_no_sense_is_not_known() {
    let odd = [
        "",
        "\n",
        " ",
        ")",
        "cpu",
        "cpu ",
        "cpu  a b c d",
        "cpu  1 2 3",
        "cpu  -1 2 3 4 5",
        "cpu  18446744073709551615 18446744073709551615 1 1 1",
        "MemTotal: kB",
        "MemTotal: 7 MB",
        "MemTotal: 99999999999999999999 kB\nMemAvailable: 1 kB",
        "0::",
        "some",
        "some avg10=",
        "some avg10=NaN",
        "some avg10=inf",
        "max",
        "0 0",
        "1 0",
        "-1 -1",
        "18446744073709551615",
        "usage_usec",
        "usage_usec x",
        "1 (a) R",
        "\u{fffd}\u{fffd}\u{0}",
        ") 1 2 3 4 5 6 7 8 9 10 x y",
    ];
    for text in odd {
        assert_eq!((ticks(text), resident(text), memory(text)), (None, None, None), "{text:?}");
        assert_eq!((busy(text), cores(text)), (None, None), "{text:?}");
        assert_eq!((group(text), mount(text)), (None, None), "{text:?}");
        assert_eq!((quota(text), used_micros(text)), (None, None), "{text:?}");
        assert_eq!(some_avg10(text), None, "{text:?}");
        // In the place of any file, and of all.
        for path in Files::machine().0.keys() {
            measured(&Files::machine(), &Files::machine().with(path, text));
        }
        let mut all = Files::machine();
        all.0.values_mut().for_each(|file| text.clone_into(file));
        let sample = measured(&all, &all).1;
        assert_eq!(
            (sample.machine.cpu, sample.machine.memory, sample.pressure),
            (None, None, None)
        );
    }
    assert_eq!(some_avg10("some avg10=250.00"), Some(1.0));
    assert_eq!(memory("MemTotal: 4 kB\nMemAvailable: 8 kB"), Some((4_096, 0)));
}

#[test]
fn counters_that_go_back_say_nothing() {
    let before = Files::machine()
        .with("/proc/stat", &STAT.replace("cpu  4707058", "cpu  9707058"))
        .with("/proc/self/stat", &SELF_STAT.replace(" 250 50 ", " 999 50 "));
    let second = measured(&before, &Files::machine()).1;
    assert_eq!((second.process.cpu, second.machine.cpu), (None, None));
}

#[test]
#[cfg(target_os = "linux")]
fn this_machine_can_be_measured() {
    let mut meter = Meter::default();
    let sample = meter.sample(Timestamp::from_micros(7));
    assert!(sample.process.memory.is_some_and(|bytes| bytes > 0), "{sample:?}");
    assert!(sample.machine.memory.is_some_and(|part| (0.0..=1.0).contains(&part)), "{sample:?}");
    assert!(sample.machine.cores.is_some_and(|cores| cores > 0.0), "{sample:?}");
    assert!(sample.machine.memory_max.is_some_and(|bytes| bytes > 0), "{sample:?}");
}
