//! Hooks for the tests of stores. Nothing here has a use in production.
//!
//! - [`PausePoints`]: points inside a request at which a test can stop it, so that two connections race
//!   in an order that the test chooses.
//! - [`Decider`]: another way to decide a request, so that a test can compare several.
//! - [`describe_answers`]: the rows that a decision sees, for comparing them with the rows that its delta
//!   leaves in the store.
//!
//! A store without hooks compares an option with `None` at each point and does nothing else.

mod orders;

pub use crate::decision::overlay::describe_answers;
pub(crate) use orders::OrderTaker;

use crate::decision::Decision;
use crate::memory::MemoryStore;
use crate::store::Request;
use crate::want::{Loaded, Loader, Want};
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

/// Points inside a request at which a test can stop it.
///
/// A store calls these on the thread that carries out the request, and goes on when they return.
pub trait PausePoints: fmt::Debug + Send + Sync {
    /// The store is about to load a want of a request.
    fn before_load(&self, want: &Want);

    /// The store is about to apply the delta of a request.
    fn before_apply(&self);

    /// The store is about to commit; all that it loads and applies has happened.
    fn before_commit(&self);

    /// Another connection holds a lock that this request needs: the store waits for it from now on.
    /// A store may say so more than once.
    fn on_blocked(&self);
}

/// A loader that never fails, of a type that does not matter.
pub type AnyLoader<'l> = dyn Loader<Stop = Infallible> + 'l;

/// Decides the requests of a memory store in place of a plain
/// [`decide`](crate::decision::decide).
pub trait Decider: Send + Sync {
    /// Decides a request. The store applies the decision.
    fn decide_request(&self, request: &Request, loader: &mut AnyLoader<'_>) -> Decision;

    /// Looks at the store once the delta of the last decision is applied.
    fn check_applied(&self, loader: &mut AnyLoader<'_>);
}

/// The hooks of one connection.
#[derive(Clone, Default)]
pub(crate) struct RequestHooks {
    pub(crate) points: Option<Arc<dyn PausePoints>>,
    pub(crate) decider: Option<Arc<dyn Decider>>,
    /// Whether plain tasks are claimed by orders.
    pub(crate) takes_orders: bool,
}

/// Stores in memory with hooks.
impl MemoryStore {
    /// A store whose requests a test decides.
    pub fn with_decider(decider: Arc<dyn Decider>) -> Self {
        let hooks = RequestHooks { decider: Some(decider), ..RequestHooks::default() };
        MemoryStore { memory: Arc::default(), hooks }
    }

    /// A store that claims plain tasks by orders, as one does that finds and changes them in one statement.
    pub fn with_orders() -> Self {
        let hooks = RequestHooks { takes_orders: true, ..RequestHooks::default() };
        MemoryStore { memory: Arc::default(), hooks }
    }

    /// Another connection to the same store, whose requests stop at these points.
    pub fn connect_with(&self, points: Arc<dyn PausePoints>) -> Self {
        let hooks = RequestHooks { points: Some(points), ..self.hooks.clone() };
        MemoryStore { memory: self.memory.clone(), hooks }
    }
}

/// A loader that stops at a pause point before each want.
#[derive(Debug)]
pub struct PausingLoader<'l, L: ?Sized> {
    loader: &'l mut L,
    points: Option<&'l dyn PausePoints>,
}

impl<'l, L: ?Sized> PausingLoader<'l, L> {
    /// A loader with these pause points; without any, it only passes on.
    pub fn new(loader: &'l mut L, points: Option<&'l dyn PausePoints>) -> Self {
        PausingLoader { loader, points }
    }
}

impl<L: Loader + ?Sized> Loader for PausingLoader<'_, L> {
    type Stop = L::Stop;

    fn load(&mut self, want: &Want) -> Result<Loaded, L::Stop> {
        if let Some(points) = self.points {
            points.before_load(want);
        }
        self.loader.load(want)
    }
}
