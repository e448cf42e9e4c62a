//! What comes to stand beside the function.

use crate::mistakes::Mistakes;
use crate::options::Options;
use crate::signature::{self, Function};
use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::ext::IdentExt;
use syn::{Attribute, LitStr, Meta};

/// The item as it was, and the task beside it.
///
/// The item is there also when something is wrong, so that its uses are no mistakes as well.
pub(crate) fn task(options: TokenStream, item: TokenStream) -> TokenStream {
    let beside = match syn::parse2(item.clone()) {
        Ok(function) => beside(&function, options),
        Err(error) => error.to_compile_error(),
    };
    quote!(#item #beside)
}

/// An empty enum has a name among the types only: the name among the functions stays free, and both
/// are imported by one `use`. A module would not find a function that is defined in another one.
fn beside(function: &Function, options: TokenStream) -> TokenStream {
    let Function { attributes, visibility, signature } = function;
    let mut mistakes = Mistakes::default();
    signature::check(signature, &mut mistakes);
    let name = &signature.ident;
    // Errors point at the name of the function; lints know that this was not written by hand.
    let here = Span::call_site().located_at(name.span());
    let Options { home, id, calls } = Options::read(options, here, &mut mistakes);
    if signature.receiver().is_some() {
        // No type can be defined where a method stands.
        return mistakes.into_tokens().unwrap_or_default();
    }

    let mut kind = name.clone();
    kind.set_span(here);
    let id = id.unwrap_or_else(|| LitStr::new(&name.unraw().to_string(), here));
    let summary = format!("The function `{}` as a task.", name.unraw());
    let hidden = attributes.iter().filter(|attribute| is_hidden(attribute));
    let deprecated = attributes.iter().filter(|attribute| attribute.path().is_ident("deprecated"));
    let marker = marker(signature.inputs.len());
    // In braces, because the compiler offers to make a closure of a bare name.
    let body = quote_spanned!(name.span()=> { #kind });
    let task = match mistakes.is_empty() {
        true => quote_spanned!(here=> #home::Task::new::<#marker>(Self::ID, #body) #calls),
        false => quote_spanned!(here=> ::core::unreachable!("this does not compile")),
    };
    let mistakes = mistakes.into_tokens();
    quote_spanned! {here=>
        #mistakes

        #[doc = #summary]
        #(#hidden)*
        #visibility enum #kind {}

        impl #kind {
            /// The name of the task.
            #visibility const ID: &'static str = #id;

            /// The task, with the options that stand at the function.
            #(#deprecated #[allow(deprecated)])*
            #[must_use]
            #visibility fn task() -> #home::Task {
                #task
            }
        }
    }
}

/// What tells functions without a handle from functions with one, the `M` of `TaskFn<M>`.
///
/// The compiler would find out, too. But when a type is wrong it would say that the function is of
/// neither kind; told of the kind, it names the type.
fn marker(parameters: usize) -> TokenStream {
    match parameters {
        1 => quote!((_, _, _)),
        _ => quote!((_, _, _, _)),
    }
}

fn is_hidden(attribute: &Attribute) -> bool {
    match &attribute.meta {
        Meta::List(list) => list.path.is_ident("doc") && list.tokens.to_string() == "hidden",
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(options: TokenStream) -> String {
        let function = quote! {
            /// Loads.
            #[deprecated]
            #[doc(hidden)]
            pub(crate) async fn load(c: &mut Context, _: &Me) -> Outcome { it? }
        };
        task(options, function).to_string()
    }

    #[test]
    fn the_expansion_fits_on_a_screen() {
        let all = quote! {
            /// Loads.
            #[deprecated]
            #[doc(hidden)]
            pub(crate) async fn load(c: &mut Context, _: &Me) -> Outcome { it? }

            #[doc = "The function `load` as a task."]
            #[doc(hidden)]
            pub(crate) enum load {}

            impl load {
                /// The name of the task.
                pub(crate) const ID: &'static str = "the load";

                /// The task, with the options that stand at the function.
                #[deprecated]
                #[allow(deprecated)]
                #[must_use]
                pub(crate) fn task() -> ::tidegate::Task {
                    ::tidegate::Task::new::<(_, _, _, _)>(Self::ID, { load })
                        .after([extract::ID, "clean"])
                        .retries(3)
                        .timeout(::core::time::Duration::new(600u64, 0u32))
                        .limits([
                            ::tidegate::LimitUse::of("api"),
                            ::tidegate::LimitUse::from(("gpu", 2))
                        ])
                        .when(::tidegate::When::AllDone)
                        .each("items")
                        .parkable()
                }
            }
        };
        let options = quote! {
            id = "the load", after = [extract, "clean"], retries = 3, timeout = "10m",
            limits = ["api", ("gpu", 2)], when = all_done, each = "items", parkable
        };
        assert_eq!(expanded(options), all.to_string());
    }

    #[test]
    fn nothing_else_is_named_where_the_crate_has_another_name() {
        let all = expanded(quote!(backoff = "2s", when = all_done, crate = other::tide));
        assert!(!all.contains("tidegate"), "{all}");
        assert_eq!(all.matches("other :: tide ::").count(), 4, "{all}");
    }

    #[test]
    fn every_option_that_is_named_to_the_user_exists() {
        let unknown = expanded(quote!(colour = red));
        let (_, listed) = unknown.split_once("the options are ").expect("they are named");
        let (listed, _) = listed.split_once('"').expect("the message ends");
        assert!(listed.split(", ").count() > 10, "{listed}");
        for option in listed.split(", ") {
            let option = syn::parse_str::<TokenStream>(option).expect("it is a word");
            let one = expanded(quote!(#option = 1.5));
            assert!(one.contains(&format!("`{option}` takes ")), "{one}");
        }
    }
}
