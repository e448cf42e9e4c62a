//! The attribute [`#[task]`](macro@task). Use it by way of the crate `tidegate`.
//!
//! - `expand`: what comes to stand beside the function.
//! - `options`: what is written in the brackets, as calls of the methods of `Task`.
//! - `signature`: whether a function has the shape of a task.
//! - `mistakes`: everything found wrong, to be said at once.
//!
//! The macro knows shapes and words; types are the compiler's. It makes nothing that could not be
//! written by hand, and registers nothing anywhere.

mod expand;
mod mistakes;
mod options;
mod signature;

use proc_macro::TokenStream;

/// Makes a task of an async function. It is described where it is used from, in the crate `tidegate`.
#[proc_macro_attribute]
pub fn task(options: TokenStream, item: TokenStream) -> TokenStream {
    expand::task(options.into(), item.into()).into()
}
