//! Whether a function has the shape of a task.
//!
//! It counts parameters and looks for words. What the parameters and the result are is not known
//! here, since a type can have any name; the compiler finds out at `Task::new`.

use crate::mistakes::{Mistakes, at};
use syn::parse::{Parse, ParseStream};
use syn::{Attribute, Error, ReturnType, Safety, Signature, Visibility, token};

/// A function without its body, which is nobody's business here.
pub(crate) struct Function {
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) visibility: Visibility,
    pub(crate) signature: Signature,
}

impl Parse for Function {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let attributes = input.call(Attribute::parse_outer)?;
        let visibility = input.parse()?;
        let no_function = input.error(
            "a task is a function with a body: \
             `async fn name(context: &mut Context) -> Result<T, TaskError> { … }`",
        );
        match input.parse() {
            Ok(signature) if input.peek(token::Brace) => {
                input.parse::<proc_macro2::TokenStream>()?;
                Ok(Function { attributes, visibility, signature })
            }
            _ => Err(no_function),
        }
    }
}

/// Finds what a task cannot be.
pub(crate) fn check(signature: &Signature, mistakes: &mut Mistakes) {
    let Signature { constness, asyncness, safety, abi, fn_token, ident, .. } = signature;
    if let Some(word) = constness {
        mistakes.add(at(word, "a task cannot be `const`: take the word out"));
    }
    if let Safety::Unsafe(word) = safety {
        mistakes.add(at(word, "a task cannot be `unsafe`: take the word out"));
    }
    if let Some(abi) = abi {
        mistakes.add(at(abi, "a task cannot be `extern`: take the word out"));
    }
    if asyncness.is_none() {
        let message = format!(
            "a task is async: write `async fn {ident}`; a function that blocks becomes a task by \
             `Task::blocking`, without `#[task]`",
        );
        mistakes.add(at(fn_token, message));
    }
    if !signature.generics.params.is_empty() {
        let message = "a task cannot be generic: write its types out, and leave lifetimes to the \
                       compiler";
        mistakes.add(at(&signature.generics, message));
    }
    if let Some(clause) = &signature.generics.where_clause {
        mistakes.add(at(clause, "a task cannot have a `where` clause: write its types out"));
    }
    check_parameters(signature, mistakes);
    if let ReturnType::Default = signature.output {
        let message = "a task returns a `Result`: write `-> Result<(), TaskError>` behind this";
        mistakes.add(Error::new(signature.paren_token.span.close(), message));
    }
}

fn check_parameters(signature: &Signature, mistakes: &mut Mistakes) {
    let name = &signature.ident;
    if let Some(receiver) = signature.receiver() {
        let message = format!(
            "a task is a function by itself, not a method: write `{name}(context: &mut Context)` \
             outside of an `impl`; `context.state()` gives what the application shares",
        );
        mistakes.add(at(receiver, message));
        return;
    }
    if signature.inputs.is_empty() {
        let message = format!(
            "a task takes the context: write `{name}(context: &mut Context)`, or \
             `{name}(context: &mut Context, handle: &TaskHandle)` if it waits without its slot",
        );
        mistakes.add(Error::new(signature.paren_token.span.join(), message));
    }
    for parameter in signature.inputs.iter().skip(2) {
        let message = "a task takes a context and a handle and nothing more: what it works on is \
                       in `context.input()` and `context.state()`";
        mistakes.add(at(parameter, message));
    }
}
