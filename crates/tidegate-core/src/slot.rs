//! The slot book: who may compute next.
//!
//! A [`SlotBook`] knows how many units there are, how many are in use and who waits for some. When
//! units come free it picks the next holders and names exactly those. It takes no clock and wakes
//! nobody: a waiter's age comes in with its [`SlotRequest`], and whoever owns the book wakes the
//! payloads it hands out.
//!
//! The order:
//!
//! - Two lanes. What was begun and wants to go on ([`Lane::Resume`]) gets [`RESUMES_PER_START`]
//!   grants for each one of what has not begun ([`Lane::Start`]) while both wait. A lane with
//!   nobody in it loses its turn.
//! - Inside a lane the oldest first, where each unit of priority counts as one second of age.
//! - The oldest waiter that does not fit may be overtaken by younger ones that do, in either lane,
//!   [`OVERTAKES_MAX`] times. Then units are kept for it until it fits; one such waiter at a time.
//!
//! Invariant: no unit is free while somebody who fits is waiting, unless units are being kept.
//!
//! Inside, waiters of the same lane, weight and priority stand in one chain by age, and the next
//! holder is the oldest among the chains' heads that fit: the cost of a grant grows with the number
//! of different kinds that wait, not with the number of waiters.

use crate::chain::{Chain, Key, Nodes};
use std::num::NonZeroU32;

/// Grants to the resume lane for each one to the start lane while both wait. What was begun is
/// finished first, because it holds memory and limits; starters are never shut out.
pub const RESUMES_PER_START: u8 = 3;

/// How often the oldest waiter that does not fit may be overtaken before units are kept for it.
/// Enough to keep the slots busy with light work, few enough that a heavy task is not starved.
pub const OVERTAKES_MAX: u8 = 16;

const SECOND: i64 = 1_000_000_000;

/// What a waiter wants to do with its units.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Lane {
    /// Go on after a wait.
    Resume,
    /// Begin.
    Start,
}

/// An instant in nanoseconds on a steady clock of the caller's choosing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Moment(pub i64);

/// What somebody asks of the book.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotRequest {
    /// Begin or go on.
    pub lane: Lane,
    /// How many units. At least 1.
    pub weight: u32,
    /// Head start over others, in seconds.
    pub priority: i32,
    /// When it became ready (to begin) or its wait ended (to go on).
    pub since: Moment,
}

impl SlotRequest {
    /// The age by which it is ordered: smaller is earlier.
    fn rank(&self) -> i64 {
        self.since.0.saturating_sub(i64::from(self.priority).saturating_mul(SECOND))
    }
}

/// A place in the book. Whoever has it must end it with [`SlotBook::collect`] or
/// [`SlotBook::leave`]; it cannot be copied, so it is ended once.
#[derive(Debug)]
#[must_use = "a place that nobody ends stays in the book for ever"]
pub struct Ticket(Key);

/// What became of a place in the book.
#[derive(Debug)]
pub enum Turn {
    /// The units are the caller's; the place is gone.
    Granted,
    /// The book was closed; the place is gone.
    Refused,
    /// Not yet.
    Waiting(Ticket),
}

/// Units, their holders and their waiters. `T` is handed out when its waiter's turn has come.
#[derive(Debug)]
pub struct SlotBook<T> {
    capacity: u32,
    in_use: u32,
    closed: bool,
    nodes: Nodes<Place<T>>,
    classes: Vec<Class>,
    waiting: usize,
    /// Grants to resumers since the last one to a starter, counted while a starter waits.
    streak: u8,
    /// The waiter that was overtaken too often; nobody else is granted anything until it is.
    kept: Option<Key>,
    arrivals: u64,
}

#[derive(Debug)]
struct Place<T> {
    request: SlotRequest,
    arrival: u64,
    overtaken: u8,
    state: PlaceState<T>,
}

#[derive(Debug)]
enum PlaceState<T> {
    Waiting(T),
    Granted,
    Refused,
}

/// The order of one waiter against another: by age, then by arrival.
type Order = (i64, u64);

impl<T> Place<T> {
    fn order(&self) -> Order {
        (self.request.rank(), self.arrival)
    }
}

/// All waiters of one lane, weight and priority, oldest first. Never empty.
#[derive(Debug)]
struct Class {
    lane: Lane,
    weight: u32,
    priority: i32,
    chain: Chain,
    /// The order of the first in the chain, kept here so that picking touches no node.
    head: Order,
}

impl<T> SlotBook<T> {
    /// A book with `capacity` free units.
    pub fn new(capacity: NonZeroU32) -> Self {
        SlotBook {
            capacity: capacity.get(),
            in_use: 0,
            closed: false,
            nodes: Nodes::default(),
            classes: Vec::new(),
            waiting: 0,
            streak: 0,
            kept: None,
            arrivals: 0,
        }
    }

    /// How many units may be in use.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// How many units are in use. Above the capacity after a shrink, until holders leave.
    pub fn in_use(&self) -> u32 {
        self.in_use
    }

    /// How many units are free.
    pub fn available(&self) -> u32 {
        self.capacity.saturating_sub(self.in_use)
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Whether [`close`](Self::close) was called.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether free units are being kept for a waiter that was overtaken too often.
    pub fn is_keeping(&self) -> bool {
        self.kept.is_some()
    }

    /// The requests of all who wait, in no order.
    pub fn waiters(&self) -> impl Iterator<Item = &SlotRequest> {
        let chains = self.classes.iter().map(|class| &class.chain);
        chains.flat_map(|chain| self.nodes.iter(chain)).map(|(_, place)| &place.request)
    }

    /// Takes units at once or not at all. Whoever waits does not fit, so this overtakes the oldest
    /// of them.
    #[must_use]
    pub fn try_take(&mut self, weight: u32) -> bool {
        if self.closed || self.kept.is_some() || !self.fits(weight) {
            return false;
        }
        if self.waiting > 0
            && let Some((_, blocked)) = self.pick().1
        {
            self.overtake(blocked);
        }
        self.in_use += weight;
        true
    }

    /// Waits in line. To be called when [`try_take`](Self::try_take) just said no: a newcomer is
    /// then not granted anything by joining.
    ///
    /// # Panics
    /// When the book is closed or the weight is 0.
    pub fn join(&mut self, request: SlotRequest, payload: T) -> Ticket {
        assert!(!self.closed, "nobody can wait in a closed book");
        assert!(request.weight > 0, "a weight is at least 1");
        self.arrivals += 1;
        self.waiting += 1;
        let place = Place {
            request,
            arrival: self.arrivals,
            overtaken: 0,
            state: PlaceState::Waiting(payload),
        };
        let order = place.order();
        let key = self.nodes.insert(place);
        let at = self.class_of(&request).unwrap_or_else(|| {
            let SlotRequest { lane, weight, priority, .. } = request;
            self.classes.push(Class { lane, weight, priority, chain: Chain::EMPTY, head: order });
            self.classes.len() - 1
        });
        let class = &mut self.classes[at];
        self.nodes.insert_sorted(&mut class.chain, key, |a, b| a.order() < b.order());
        class.head = class.head.min(order);
        Ticket(key)
    }

    /// Asks what became of a place. While it waits, `renew` may change its payload.
    pub fn collect(&mut self, ticket: Ticket, renew: impl FnOnce(&mut T)) -> Turn {
        let place = self.nodes.get_mut(ticket.0);
        let turn = match &mut place.state {
            PlaceState::Waiting(payload) => {
                renew(payload);
                return Turn::Waiting(ticket);
            }
            PlaceState::Granted => Turn::Granted,
            PlaceState::Refused => Turn::Refused,
        };
        self.nodes.remove(ticket.0);
        turn
    }

    /// Gives a place up, and with it the units if they were granted meanwhile. Returns the payload
    /// of a place that still waited.
    pub fn leave(&mut self, ticket: Ticket, woken: impl FnMut(T)) -> Option<T> {
        let key = ticket.0;
        if matches!(self.nodes.get(key).state, PlaceState::Waiting(_)) {
            self.unlink(key);
        }
        let place = self.nodes.remove(key);
        match place.state {
            PlaceState::Waiting(payload) => {
                // Units may have been kept for the one who left.
                self.settle(woken);
                Some(payload)
            }
            PlaceState::Granted => {
                self.give_back(place.request.weight, woken);
                None
            }
            PlaceState::Refused => None,
        }
    }

    /// Gives units back; `woken` gets the payload of each waiter whose turn has come.
    ///
    /// # Panics
    /// When more is given back than was taken.
    pub fn give_back(&mut self, weight: u32, woken: impl FnMut(T)) {
        self.in_use = self.in_use.checked_sub(weight).expect("units are given back once");
        self.settle(woken);
    }

    /// Changes the capacity. Growing grants at once. Shrinking takes nothing away: there are no
    /// grants until enough holders have left, and a waiter heavier than the new capacity is granted
    /// alone, when nothing is in use.
    pub fn resize(&mut self, capacity: NonZeroU32, woken: impl FnMut(T)) {
        self.capacity = capacity.get();
        self.settle(woken);
    }

    /// Refuses all who wait and all who come later. Holders keep what they have.
    pub fn close(&mut self, mut woken: impl FnMut(T)) {
        self.closed = true;
        self.kept = None;
        self.waiting = 0;
        for mut class in self.classes.drain(..) {
            while let Some(key) = self.nodes.pop_front(&mut class.chain) {
                let state = &mut self.nodes.get_mut(key).state;
                if let PlaceState::Waiting(payload) = std::mem::replace(state, PlaceState::Refused)
                {
                    woken(payload);
                }
            }
        }
    }

    /// Grants while somebody fits.
    fn settle(&mut self, mut woken: impl FnMut(T)) {
        while self.waiting > 0 {
            let next = match self.kept {
                Some(key) => self.fits(self.nodes.get(key).request.weight).then_some(key),
                None if self.in_use >= self.capacity => None,
                None => self.choose(),
            };
            let Some(key) = next else { return };
            self.unlink(key);
            self.count_turn(self.nodes.get(key).request.lane);
            let place = self.nodes.get_mut(key);
            self.in_use += place.request.weight;
            let state = std::mem::replace(&mut place.state, PlaceState::Granted);
            let PlaceState::Waiting(payload) = state else {
                unreachable!("only who waits stands in a chain")
            };
            woken(payload);
        }
    }

    /// Picks the next holder by the rules, and counts whom it overtakes.
    fn choose(&mut self) -> Option<Key> {
        let (best, blocked) = self.pick();
        let lanes = match self.streak {
            RESUMES_PER_START.. => [Lane::Start, Lane::Resume],
            _ => [Lane::Resume, Lane::Start],
        };
        let (order, at) = lanes.into_iter().find_map(|lane| best[lane as usize])?;
        if let Some((_, key)) = blocked.filter(|&(older, _)| older < order) {
            self.overtake(key);
        }
        self.classes[at].chain.first()
    }

    /// Counts a grant as its lane's turn, also one of kept units.
    fn count_turn(&mut self, lane: Lane) {
        let starters = self.classes.iter().any(|class| class.lane == Lane::Start);
        self.streak = match lane {
            Lane::Resume if starters => (self.streak + 1).min(RESUMES_PER_START),
            _ => 0,
        };
    }

    /// The oldest waiter that fits, per lane, as its class; and the oldest that does not.
    #[allow(clippy::type_complexity)]
    fn pick(&self) -> ([Option<(Order, usize)>; 2], Option<(Order, Key)>) {
        let mut best: [Option<(Order, usize)>; 2] = [None, None];
        let mut blocked: Option<(Order, usize)> = None;
        for (at, class) in self.classes.iter().enumerate() {
            let rival = match self.fits(class.weight) {
                true => &mut best[class.lane as usize],
                false => &mut blocked,
            };
            if rival.is_none_or(|(order, _)| class.head < order) {
                *rival = Some((class.head, at));
            }
        }
        let first = |at: usize| self.classes[at].chain.first().expect("a class is never empty");
        (best, blocked.map(|(order, at)| (order, first(at))))
    }

    fn overtake(&mut self, key: Key) {
        let place = self.nodes.get_mut(key);
        place.overtaken += 1;
        if place.overtaken >= OVERTAKES_MAX {
            self.kept = Some(key);
        }
    }

    fn fits(&self, weight: u32) -> bool {
        // The second case is a waiter that a shrink has made heavier than the whole.
        weight <= self.available() || (self.in_use == 0 && weight > self.capacity)
    }

    fn class_of(&self, request: &SlotRequest) -> Option<usize> {
        self.classes.iter().position(|class| {
            (class.lane, class.weight, class.priority)
                == (request.lane, request.weight, request.priority)
        })
    }

    /// Takes a waiter out of its chain; its place stays.
    fn unlink(&mut self, key: Key) {
        let request = self.nodes.get(key).request;
        let at = self.class_of(&request).expect("whoever waits is in a class");
        let class = &mut self.classes[at];
        self.nodes.unlink(&mut class.chain, key);
        match class.chain.first() {
            Some(first) => class.head = self.nodes.get(first).order(),
            None => drop(self.classes.swap_remove(at)),
        }
        self.waiting -= 1;
        if self.kept == Some(key) {
            self.kept = None;
        }
    }
}
