//! The public interface of a crate: its items, and their functions and constants.
//!
//! Implementations of traits are left out, as are hidden items, and what macros define.

use std::collections::{BTreeMap, BTreeSet};

use syn::{Attribute, ImplItem, Item, TraitItem, Type, Visibility};

use super::modules::{Crate, attributes, flatten, is_left_out, name_of};

/// An item: the module that defines it, and its name there.
type Defined = (usize, String);

impl Crate {
    /// Returns the paths of the public items and of their functions and constants.
    ///
    /// Paths begin at the root, such as `Counter::add` and `profile::start`.
    pub(super) fn public(&self) -> BTreeSet<String> {
        let mut items = BTreeMap::new();
        self.add_public(0, "", &mut items);
        let mut paths: BTreeSet<String> = items.values().cloned().collect();
        for (index, module) in self.0.iter().enumerate() {
            for item in &module.items {
                let (owner, names) = members(item);
                let defined = owner.map(|path| self.defined(index, &path)).unwrap_or_default();
                if let Some(path) = defined.iter().find_map(|defined| items.get(defined)) {
                    paths.extend(names.iter().map(|name| format!("{path}::{name}")));
                }
            }
        }
        paths
    }

    /// Adds the public items of a module, with their paths.
    fn add_public(&self, index: usize, prefix: &str, items: &mut BTreeMap<Defined, String>) {
        for item in self.0[index].items.iter().filter(|item| !is_hidden(attributes(item))) {
            match item {
                Item::Use(import) if is_public(&import.vis) => {
                    for (path, name) in flatten(&import.tree) {
                        let Some(name) = name else { continue };
                        for defined in self.defined(index, &path) {
                            items.insert(defined, format!("{prefix}{name}"));
                        }
                    }
                }
                Item::Mod(module) if is_public(&module.vis) => {
                    let name = module.ident.to_string();
                    if let Some(child) = self.child(index, &name) {
                        self.add_public(child, &format!("{prefix}{name}::"), items);
                    }
                }
                item => {
                    if let Some(name) = name_of(item).filter(|_| is_public_item(item)) {
                        items.insert((index, name.clone()), format!("{prefix}{name}"));
                    }
                }
            }
        }
    }

    /// Returns the items that a path in module `from` may name.
    fn defined(&self, from: usize, path: &[String]) -> Vec<Defined> {
        let Some(name) = path.last() else { return Vec::new() };
        self.resolve(from, path, 0).into_iter().map(|module| (module, name.clone())).collect()
    }
}

/// Returns the path of a type or trait that an item adds public members to, and their names.
fn members(item: &Item) -> (Option<Vec<String>>, Vec<String>) {
    match item {
        Item::Impl(block) if block.trait_.is_none() => {
            let Type::Path(owner) = &*block.self_ty else { return (None, Vec::new()) };
            let segments = owner.path.segments.iter().map(|segment| segment.ident.to_string());
            let names = block.items.iter().filter_map(|member| match member {
                ImplItem::Fn(it) => is_shown(&it.vis, &it.attrs).then(|| it.sig.ident.to_string()),
                ImplItem::Const(it) => is_shown(&it.vis, &it.attrs).then(|| it.ident.to_string()),
                _ => None,
            });
            (Some(segments.collect()), names.collect())
        }
        Item::Trait(item) => {
            let names = item.items.iter().filter_map(|member| match member {
                TraitItem::Fn(it) if !is_hidden(&it.attrs) => Some(it.sig.ident.to_string()),
                _ => None,
            });
            (Some(vec![item.ident.to_string()]), names.collect())
        }
        _ => (None, Vec::new()),
    }
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

fn is_shown(visibility: &Visibility, attributes: &[Attribute]) -> bool {
    is_public(visibility) && !is_hidden(attributes) && !is_left_out(attributes)
}

fn is_public_item(item: &Item) -> bool {
    match item {
        Item::Const(item) => is_public(&item.vis),
        Item::Enum(item) => is_public(&item.vis),
        Item::Fn(item) => is_public(&item.vis),
        Item::Static(item) => is_public(&item.vis),
        Item::Struct(item) => is_public(&item.vis),
        Item::Trait(item) => is_public(&item.vis),
        Item::Type(item) => is_public(&item.vis),
        Item::Union(item) => is_public(&item.vis),
        _ => false,
    }
}

fn is_hidden(attributes: &[Attribute]) -> bool {
    attributes.iter().filter(|attribute| attribute.path().is_ident("doc")).any(|attribute| {
        attribute.parse_args::<syn::Ident>().is_ok_and(|argument| argument == "hidden")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_and_members_are_public_where_users_find_them() {
        let sh = xshell::Shell::new().unwrap();
        let directory = sh.create_temp_dir().unwrap();
        let file = |name: &str| directory.path().join(name);
        let root = "mod a; pub mod b; #[doc(hidden)] pub mod c; pub use a::{One, Two as Other}; \
            pub const LIMIT: u64 = 1; struct Own; impl Own { pub fn no(&self) {} }";
        let a = "pub struct One; pub struct Two; pub struct Unnamed; \
            impl One { pub fn new() {} fn no() {} #[doc(hidden)] pub fn hidden() {} \
            #[cfg(thiscpu_model)] pub fn modeled() {} pub const MAX: u64 = 1; } \
            impl Drop for One { fn drop(&mut self) {} } impl Unnamed { pub fn no() {} }";
        let b = "use super::a::Two; impl<T> Two { pub fn take() {} } \
            pub trait Show { fn show(); } pub(crate) fn no() {}";
        for (name, text) in [("lib.rs", root), ("a.rs", a), ("b.rs", b), ("c.rs", "pub fn no() {}")]
        {
            sh.write_file(file(name), text).unwrap();
        }
        let public = Crate::parse(&file("lib.rs")).unwrap().public();
        let expected = [
            "LIMIT",
            "One",
            "One::MAX",
            "One::new",
            "Other",
            "Other::take",
            "b::Show",
            "b::Show::show",
        ];
        assert_eq!(public.iter().collect::<Vec<_>>(), expected.iter().collect::<Vec<_>>());
    }
}
