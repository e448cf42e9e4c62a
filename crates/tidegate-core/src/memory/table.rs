//! The tables of a memory store: rows by key, and lists of rows that follow from the rows.

use crate::delta::TaskWrite;
use crate::lifecycle::{State, WorkerId};
use crate::limit::{Hold, LimitKey, LimitRow};
use crate::rows::Gate;
use crate::store::{Bytes, Record, RunKey, TaskKey};
use crate::wait::{WaitKind, Waiting};
use crate::want::{FiledKey, TaskGroup};
use crate::{RunId, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A row that says in which lists it is found.
pub(super) trait IndexedRow {
    /// The name of a list.
    type List: Ord;

    /// The lists in which the row stands, and the time by which it is sorted in each.
    fn find_lists(&self) -> Vec<(Self::List, Timestamp)>;
}

/// Keys of rows by time.
pub(super) type KeysByTime<K> = BTreeSet<(Timestamp, K)>;

/// Rows by key, and the lists in which they stand.
pub(super) struct IndexedTable<K, R: IndexedRow> {
    pub(super) rows: BTreeMap<K, R>,
    /// None of them is empty.
    pub(super) lists: BTreeMap<R::List, KeysByTime<K>>,
}

impl<K, R: IndexedRow> Default for IndexedTable<K, R> {
    fn default() -> Self {
        IndexedTable { rows: BTreeMap::new(), lists: BTreeMap::new() }
    }
}

impl<K: Ord + Clone, R: IndexedRow> IndexedTable<K, R> {
    /// Puts a row in the place of the one with this key, or removes that. Returns it.
    pub(super) fn replace_row(&mut self, key: K, row: Option<R>) -> Option<R> {
        let before = self.rows.remove(&key);
        let left = Vec::from_iter(before.iter().flat_map(R::find_lists));
        let joined = Vec::from_iter(row.iter().flat_map(R::find_lists));
        for (list, at) in left.iter().filter(|place| !joined.contains(place)) {
            let keys = self.lists.get_mut(list).expect("a row stands in its lists");
            keys.remove(&(*at, key.clone()));
            if keys.is_empty() {
                self.lists.remove(list);
            }
        }
        for (list, at) in joined.into_iter().filter(|place| !left.contains(place)) {
            self.lists.entry(list).or_default().insert((at, key.clone()));
        }
        if let Some(row) = row {
            self.rows.insert(key, row);
        }
        before
    }

    /// The keys in a list, with their times.
    pub(super) fn list_keys(
        &self,
        list: &R::List,
    ) -> impl DoubleEndedIterator<Item = &(Timestamp, K)> + use<'_, K, R> {
        self.lists.get(list).into_iter().flatten()
    }

    /// The rows in a list, with their keys.
    pub(super) fn list_rows(
        &self,
        list: &R::List,
    ) -> impl DoubleEndedIterator<Item = (&K, &R)> + use<'_, K, R> {
        self.list_keys(list).map(|(_, key)| (key, &self.rows[key]))
    }

    /// The first keys in a list whose times are not later than this.
    pub(super) fn list_due(&self, list: &R::List, until: Timestamp, max: u32) -> Vec<K> {
        let due = self.list_keys(list).take_while(|(at, _)| *at <= until);
        due.take(max as usize).map(|(_, key)| key.clone()).collect()
    }

    /// Whether the lists are those that follow from the rows.
    pub(super) fn has_true_lists(&self) -> bool {
        let mut lists: BTreeMap<R::List, KeysByTime<K>> = BTreeMap::new();
        for (key, row) in &self.rows {
            for (list, at) in row.find_lists() {
                lists.entry(list).or_default().insert((at, key.clone()));
            }
        }
        lists == self.lists
    }
}

/// A list of tasks.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TaskList {
    /// The first task of the run with this id.
    Id(RunId),
    /// The first task of the run with this idempotency key.
    Key(FiledKey),
    /// First tasks that were not entered, of runs in this queue that have not ended and that no task
    /// has begun.
    Unbegun(Arc<str>),
    /// Tasks with an alarm.
    Alarms,
    /// Tasks that this worker owns.
    OwnedBy(WorkerId),
    /// Parked tasks.
    Parked,
    /// Ready tasks behind the gate with this number.
    Gate(u8),
    /// Tasks that can be claimed and whether a task waits for their runs, by claim order.
    Claimable(bool, TaskGroup),
    /// Tasks that are blocked on this limit, by claim order.
    BlockedOn(LimitKey, TaskGroup),
}

impl IndexedRow for TaskWrite {
    type List = TaskList;

    fn find_lists(&self) -> Vec<(TaskList, Timestamp)> {
        let TaskWrite { row, place, queue, .. } = self;
        let anytime = Timestamp::default();
        let mut lists = Vec::new();
        lists.extend(place.gate.map(|gate| (TaskList::Gate(gate.code()), anytime)));
        lists.extend(place.alarm.map(|alarm| (TaskList::Alarms, alarm)));
        if let Some(order) = place.order {
            let list = match (place.gate, &place.behind) {
                (Some(Gate::Open), _) => Some(TaskList::Claimable(false, group_of(self))),
                (Some(Gate::Awaited), _) => Some(TaskList::Claimable(true, group_of(self))),
                (_, Some(limit)) => Some(TaskList::BlockedOn(limit.clone(), group_of(self))),
                _ => None,
            };
            lists.extend(list.map(|list| (list, order)));
        }
        match row.life.state {
            State::Running { worker, .. } => lists.push((TaskList::OwnedBy(worker), anytime)),
            State::Parked { .. } => lists.push((TaskList::Parked, anytime)),
            _ => {}
        }
        if let Some(head) = &row.head {
            lists.push((TaskList::Id(head.id), anytime));
            lists.extend(FiledKey::new(row).map(|key| (TaskList::Key(key), anytime)));
            if head.parent.is_none() && head.ended.is_none() && row.life.started.is_none() {
                lists.push((TaskList::Unbegun(queue.clone()), anytime));
            }
        }
        lists
    }
}

/// The task group of a task.
pub(super) fn group_of(task: &TaskWrite) -> TaskGroup {
    TaskGroup::new(&task.queue, &task.row.plan, task.row.index)
}

/// A list of open waits.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WaitList {
    /// Those for signals of this name to this run, the oldest first.
    Signal(RunKey, Arc<str>),
    /// Those for the end of this run.
    Run(RunKey),
}

impl IndexedRow for Waiting {
    type List = WaitList;

    fn find_lists(&self) -> Vec<(WaitList, Timestamp)> {
        let Some(run) = self.run.filter(|_| self.is_open()) else { return Vec::new() };
        match self.id.kind {
            WaitKind::Signal => vec![(WaitList::Signal(run, self.id.name.clone()), self.since)],
            kind if kind.is_for_run() => vec![(WaitList::Run(run), Timestamp::default())],
            _ => Vec::new(),
        }
    }
}

/// A signal that was sent.
#[derive(Clone)]
pub(super) struct SentSignal {
    pub(super) id: u128,
    pub(super) run: RunKey,
    pub(super) name: Arc<str>,
    pub(super) body: Option<Bytes>,
    pub(super) sent_at: Timestamp,
    pub(super) taken_by: Option<TaskKey>,
}

/// A list of signals.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SignalList {
    /// The one that was sent to this run with this id.
    Sent(RunKey, u128),
    /// Those of this name to this run that no task has received.
    Untaken(RunKey, Arc<str>),
}

impl IndexedRow for SentSignal {
    type List = SignalList;

    fn find_lists(&self) -> Vec<(SignalList, Timestamp)> {
        let untaken = || SignalList::Untaken(self.run, self.name.clone());
        let untaken = self.taken_by.is_none().then(untaken);
        let lists = [SignalList::Sent(self.run, self.id)].into_iter().chain(untaken);
        lists.map(|list| (list, Timestamp::default())).collect()
    }
}

/// Holds by limit.
impl IndexedRow for Hold {
    type List = LimitKey;

    fn find_lists(&self) -> Vec<(LimitKey, Timestamp)> {
        vec![(self.limit.clone(), Timestamp::default())]
    }
}

/// Records by run.
impl IndexedRow for Record {
    type List = RunKey;

    fn find_lists(&self) -> Vec<(RunKey, Timestamp)> {
        vec![(self.run, Timestamp::default())]
    }
}

/// Limits with an alarm.
impl IndexedRow for LimitRow {
    type List = ();

    fn find_lists(&self) -> Vec<((), Timestamp)> {
        self.alarm.map(|alarm| ((), alarm)).into_iter().collect()
    }
}
