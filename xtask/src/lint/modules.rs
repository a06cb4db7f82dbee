//! The modules of a crate, and which file each path in them leads to.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use proc_macro2::{TokenStream, TokenTree};
use syn::parse::Parser as _;
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{Attribute, Ident, Item, Meta, Token, UseTree, Visibility};

/// What a name in a module stands for.
#[derive(Clone, Debug)]
enum Definition {
    /// An item of the module itself.
    Item,
    Module(usize),
    /// A `use`: the path that it names.
    Path(Vec<String>),
}

#[derive(Default)]
pub(super) struct Module {
    file: PathBuf,
    parent: usize,
    names: BTreeMap<String, Vec<Definition>>,
    globs: Vec<Vec<String>>,
    /// Paths that the module's code mentions.
    mentions: BTreeSet<Vec<String>>,
    /// All items except inline modules, whose content is in modules of their own.
    pub(super) items: Vec<Item>,
}

/// A crate's modules without tests and without what only models compile.
pub(super) struct Crate(pub(super) Vec<Module>);

/// Follows no chain of `use`s that is longer than this.
const MAX_DEPTH: usize = 16;

impl Crate {
    /// Parses the crate whose root is `file`.
    pub(super) fn parse(file: &Path) -> Result<Crate> {
        let mut modules = Crate(Vec::new());
        modules.add_file(file, file.parent().context("a root without a directory")?, 0)?;
        Ok(modules)
    }

    /// Returns which files import something that another file defines.
    pub(super) fn imports(&self) -> BTreeSet<(PathBuf, PathBuf)> {
        let mut imports = BTreeSet::new();
        for (index, module) in self.0.iter().enumerate() {
            for path in &module.mentions {
                let found = self.resolve(index, path, 0);
                let files = found.iter().map(|&target| &self.0[target].file);
                let others = files.filter(|file| **file != module.file);
                imports.extend(others.map(|file| (module.file.clone(), file.clone())));
            }
        }
        imports
    }

    /// Adds the module of `file`, whose submodules are in `directory`.
    fn add_file(&mut self, file: &Path, directory: &Path, parent: usize) -> Result<usize> {
        let name = || file.display().to_string();
        let text = std::fs::read_to_string(file).with_context(name)?;
        let items = syn::parse_file(&text).with_context(name)?.items;
        self.add(file, directory, parent, items)
    }

    fn add(
        &mut self,
        file: &Path,
        directory: &Path,
        parent: usize,
        items: Vec<Item>,
    ) -> Result<usize> {
        let index = self.0.len();
        self.0.push(Module { file: file.to_owned(), parent, ..Module::default() });
        for mut item in items.into_iter().filter(|item| !is_left_out(attributes(item))) {
            self.add_item(index, directory, &mut item)?;
            self.0[index].items.push(item);
        }
        Ok(index)
    }

    fn add_item(&mut self, index: usize, directory: &Path, item: &mut Item) -> Result<()> {
        match item {
            Item::Mod(module) => {
                let name = module.ident.to_string();
                let inside = directory.join(&name);
                let child = match module.content.take() {
                    Some((_, items)) => {
                        let file = self.0[index].file.clone();
                        self.add(&file, &inside, index, items)?
                    }
                    None => {
                        let file = file_of(&self.0[index].file, directory, &name, &module.attrs);
                        self.add_file(&file, &inside, index)?
                    }
                };
                self.define(index, name, Definition::Module(child));
            }
            Item::Use(import) => {
                let is_private = matches!(import.vis, Visibility::Inherited);
                for (path, name) in flatten(&import.tree) {
                    // A re-export imports nothing; users of the name import the item itself.
                    if is_private {
                        self.0[index].mentions.insert(path.clone());
                    }
                    match name {
                        Some(name) => self.define(index, name, Definition::Path(path)),
                        None => self.0[index].globs.push(path),
                    }
                }
            }
            item => {
                if let Some(name) = name_of(item) {
                    self.define(index, name, Definition::Item);
                }
                Mentions(&mut self.0[index].mentions).visit_item(item);
            }
        }
        Ok(())
    }

    fn define(&mut self, module: usize, name: String, definition: Definition) {
        self.0[module].names.entry(name).or_default().push(definition);
    }

    /// Returns the modules that define what `path` may name in module `from`.
    pub(super) fn resolve(&self, from: usize, path: &[String], depth: usize) -> Vec<usize> {
        let Some((first, rest)) = path.split_first().filter(|_| depth < MAX_DEPTH) else {
            return Vec::new();
        };
        match &**first {
            "crate" | "$crate" => self.resolve_in(0, rest, depth),
            "self" => self.resolve_in(from, rest, depth),
            "super" if rest.first().is_some_and(|next| next == "super") => {
                self.resolve(self.0[from].parent, rest, depth + 1)
            }
            "super" => self.resolve_in(self.0[from].parent, rest, depth),
            _ => self.resolve_in(from, path, depth),
        }
    }

    /// Returns the module `name` of `parent`.
    pub(super) fn child(&self, parent: usize, name: &str) -> Option<usize> {
        self.0[parent].names.get(name)?.iter().find_map(|definition| match definition {
            Definition::Module(child) => Some(*child),
            _ => None,
        })
    }

    /// Resolves a path that begins with a name of `module`.
    fn resolve_in(&self, module: usize, path: &[String], depth: usize) -> Vec<usize> {
        let Some((first, rest)) = path.split_first().filter(|_| depth < MAX_DEPTH) else {
            return Vec::new();
        };
        let globs = self.0[module].globs.iter();
        let globs =
            globs.map(|glob| Definition::Path([&glob[..], std::slice::from_ref(first)].concat()));
        let named = self.0[module].names.get(first);
        let mut definitions: Vec<_> = match named {
            Some(named) => named.clone(),
            None => globs.collect(),
        };
        // A path that goes on after a name means the module, not a function with the same name.
        let is_module = |definition: &Definition| matches!(definition, Definition::Module(_));
        if !rest.is_empty() && definitions.iter().any(is_module) {
            definitions.retain(is_module);
        }
        let resolved = definitions.into_iter().flat_map(|definition| match definition {
            Definition::Item => vec![module],
            Definition::Module(child) => self.resolve_in(child, rest, depth + 1),
            Definition::Path(target) => {
                self.resolve(module, &[&target[..], rest].concat(), depth + 1)
            }
        });
        resolved.collect()
    }
}

/// Returns the file of `mod name;` in `file`.
fn file_of(file: &Path, directory: &Path, name: &str, attributes: &[Attribute]) -> PathBuf {
    let path = attributes.iter().find_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(path), .. }) => Some(path.value()),
            _ => None,
        },
        _ => None,
    });
    match path {
        Some(path) => file.with_file_name(path),
        None => {
            let alone = directory.join(name).with_extension("rs");
            if alone.exists() { alone } else { directory.join(name).join("mod.rs") }
        }
    }
}

/// Returns whether only tests or models compile an item.
pub(super) fn is_left_out(attributes: &[Attribute]) -> bool {
    let mut conditions = attributes.iter().filter(|attribute| attribute.path().is_ident("cfg"));
    conditions.any(|condition| condition.parse_args().is_ok_and(|meta| needs_test(&meta)))
}

fn needs_test(condition: &Meta) -> bool {
    match condition {
        Meta::Path(name) => name.is_ident("test") || name.is_ident("thiscpu_model"),
        Meta::List(list) if !list.path.is_ident("not") => {
            let parts = Punctuated::<Meta, Token![,]>::parse_terminated.parse2(list.tokens.clone());
            parts.is_ok_and(|parts| parts.iter().any(needs_test))
        }
        _ => false,
    }
}

/// Returns a field that these kinds of items have.
macro_rules! field {
    ($item:expr, $field:ident: $($kind:ident)*) => {
        match $item {
            $(Item::$kind(item) => Some(&item.$field),)*
            _ => None,
        }
    };
}

pub(super) fn attributes(item: &Item) -> &[Attribute] {
    field!(
        item,
        attrs: Const Enum ExternCrate Fn ForeignMod Impl Macro Mod
            Static Struct Trait Type Union Use
    )
    .map_or(&[], Vec::as_slice)
}

pub(super) fn name_of(item: &Item) -> Option<String> {
    let name = match item {
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        _ => field!(item, ident: Const Enum Static Struct Trait Type Union)?,
    };
    Some(name.to_string())
}

/// Returns the paths of a `use`, each with the name that it binds; none for a glob.
pub(super) fn flatten(tree: &UseTree) -> Vec<(Vec<String>, Option<String>)> {
    let mut found = Vec::new();
    add_paths(tree, &[], &mut found);
    found
}

fn add_paths(tree: &UseTree, prefix: &[String], found: &mut Vec<(Vec<String>, Option<String>)>) {
    // `a::{self}` binds `a`.
    let path = |name: &Ident| match name == "self" && !prefix.is_empty() {
        true => prefix.to_vec(),
        false => [prefix, &[name.to_string()]].concat(),
    };
    match tree {
        UseTree::Path(tree) => {
            add_paths(&tree.tree, &[prefix, &[tree.ident.to_string()]].concat(), found);
        }
        UseTree::Name(name) => {
            let path = path(&name.ident);
            let name = path.last().cloned();
            found.push((path, name));
        }
        UseTree::Rename(name) => found.push((path(&name.ident), Some(name.rename.to_string()))),
        UseTree::Glob(_) => found.push((prefix.to_vec(), None)),
        UseTree::Group(group) => group.items.iter().for_each(|tree| add_paths(tree, prefix, found)),
    }
}

/// Collects the paths in an item.
struct Mentions<'m>(&'m mut BTreeSet<Vec<String>>);

impl<'ast> Visit<'ast> for Mentions<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_left_out(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !is_left_out(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_item_use(&mut self, import: &'ast syn::ItemUse) {
        self.0.extend(flatten(&import.tree).into_iter().map(|(path, _)| path));
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.0.insert(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    /// Takes every chain of names in a macro's tokens for a path.
    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        visit::visit_macro(self, call);
        self.tokens(call.tokens.clone());
    }
}

impl Mentions<'_> {
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(name) if colons == 2 => path.push(name.to_string()),
                TokenTree::Ident(name) => {
                    self.0.insert(std::mem::replace(&mut path, vec![name.to_string()]));
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => {
                    colons += 1;
                    continue;
                }
                TokenTree::Group(group) => self.tokens(group.stream()),
                _ => drop(self.0.insert(std::mem::take(&mut path))),
            }
            colons = 0;
        }
        self.0.insert(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the imports of a crate of these files, the first of which is its root.
    fn imports(files: &[(&str, &str)]) -> Vec<String> {
        let sh = xshell::Shell::new().unwrap();
        let directory = sh.create_temp_dir().unwrap();
        for (file, text) in files {
            sh.write_file(directory.path().join(file), text).unwrap();
        }
        let all = Crate::parse(&directory.path().join(files[0].0)).unwrap().imports();
        let name = |path: &Path| path.strip_prefix(directory.path()).unwrap().display().to_string();
        all.iter().map(|(from, to)| format!("{} {}", name(from), name(to))).collect()
    }

    #[test]
    fn every_form_of_path_is_an_import() {
        for (code, is_import) in [
            ("use super::b::Item;", true),
            ("use crate::b::{self, other};", false),
            ("use crate::b; fn f() { b::f() }", true),
            ("use crate::b::*;", false),
            ("use crate::b::*; fn f(_: Item) {}", true),
            ("fn f() { use super::b::Item as Other; }", true),
            ("fn f(_: &crate::b::Item) {}", true),
            ("fn f() { println!(\"{}\", super::b::f()) }", true),
            ("macro_rules! m { () => { $crate::b::f() } }", true),
            ("use super::Exported;", true),
            ("mod c { fn f() { super::super::b::f() } }", true),
            ("pub use super::b::Item;", false),
            ("#[cfg(test)] mod tests { use crate::b::Item; }", false),
            ("#[cfg(all(test, unix))] use crate::b::Item;", false),
            ("#[cfg(not(test))] use crate::b::Item;", true),
            ("struct Item; fn f(_: Item) {}", false),
        ] {
            let root = ("lib.rs", "mod a; mod b; pub use b::Item as Exported;");
            let b = ("b/mod.rs", "pub struct Item; pub fn f() {}");
            let found = imports(&[root, ("a.rs", code), b]);
            assert_eq!(found == ["a.rs b/mod.rs"], is_import, "{code}: {found:?}");
        }
    }
}
