//! Finds import cycles between the files of each crate. A name counts for the file that defines it, independent of re-exports;
//! tests do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemUse, Macro, UseTree};

/// A module by its names from the crate's root; the root has none.
type Module = Vec<String>;

/// The sources of one crate.
#[derive(Default)]
pub struct Crate {
    modules: BTreeMap<Module, Names>,
    /// Paths used in each module.
    paths: BTreeMap<Module, BTreeSet<Vec<String>>>,
    files: BTreeMap<Module, String>,
    /// Modules in separate files that are compiled only for tests.
    tests: BTreeSet<Module>,
}

#[derive(Default)]
struct Names {
    defined: BTreeSet<String>,
    imported: BTreeMap<String, Vec<String>>,
    globs: Vec<Vec<String>>,
}

impl Crate {
    /// Adds a file by its path below the crate's root folder, such as `edge/mod.rs`.
    pub fn add(&mut self, file: &str, text: &str) {
        let parsed = syn::parse_file(text).unwrap_or_else(|error| panic!("{file}: {error}"));
        let path = Path::new(file).with_extension("");
        let mut module: Module = path
            .iter()
            .map(|part| part.to_string_lossy().into())
            .collect();
        if matches!(
            module.last().map(String::as_str),
            Some("mod" | "lib" | "main")
        ) {
            module.pop();
        }
        self.files.insert(module.clone(), file.to_owned());
        self.read(module, &parsed.items);
    }

    fn read(&mut self, module: Module, items: &[Item]) {
        let mut names = Names::default();
        let mut found = Paths::default();
        for item in items {
            match item {
                Item::Mod(item) if !is_test(&item.attrs) => {
                    let name = item.ident.to_string();
                    if let Some((_, items)) = &item.content {
                        let inner = [&module[..], &[name]].concat();
                        self.files
                            .insert(inner.clone(), self.files[&module].clone());
                        self.read(inner, items);
                    }
                }
                Item::Mod(item) => {
                    let name = item.ident.to_string();
                    self.tests.insert([&module[..], &[name]].concat());
                }
                Item::Use(item) => imports(item, &mut names),
                other => {
                    names.defined.extend(name_of(other));
                    found.visit_item(other);
                }
            }
        }
        found.paths.extend(names.imported.values().cloned());
        found.paths.extend(names.globs.iter().cloned());
        self.paths.insert(module.clone(), found.paths);
        self.modules.insert(module, names);
    }

    /// The files of the largest cycle; empty if there is none.
    pub fn largest_circle(&self) -> Vec<String> {
        let circles = circles(&self.imports()).into_iter();
        circles.max_by_key(Vec::len).unwrap_or_default()
    }

    /// The folders of the largest cycle below the crate's root. A file next to a folder of its name belongs to the folder. Other
    /// files of the root may link folders, but do not count. The root module imports everything and does not count, either.
    pub fn largest_folder_circle(&self) -> Vec<String> {
        let folder = |file: &String| {
            let first = file.split('/').next().unwrap_or_default();
            first.trim_end_matches(".rs").to_owned()
        };
        let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (file, imported) in self.imports() {
            let from = folder(&file);
            if from == "lib" || from == "main" {
                continue;
            }
            let others = imported.iter().map(folder).filter(|to| *to != from);
            edges.entry(from.clone()).or_default().extend(others);
        }
        let has_folder = |name: &String| {
            let inside = format!("{name}/");
            self.files.values().any(|file| file.starts_with(&inside))
        };
        let circles = circles(&edges).into_iter();
        let circles = circles.map(|circle| circle.into_iter().filter(has_folder).collect());
        circles.max_by_key(Vec::len).unwrap_or_default()
    }

    /// Each file with the files that it imports from.
    fn imports(&self) -> BTreeMap<String, BTreeSet<String>> {
        let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let is_compiled = |module: &Module| {
            (1..=module.len()).all(|length| !self.tests.contains(&module[..length]))
        };
        for (module, paths) in self.paths.iter().filter(|(module, _)| is_compiled(module)) {
            let own = &self.files[module];
            let named = paths
                .iter()
                .filter_map(|path| self.file_of(module, path, 0));
            let others = named.filter(|file| file != own).map(str::to_owned);
            edges.entry(own.clone()).or_default().extend(others);
        }
        edges
    }

    /// The file that defines the target of a path in a module, if it belongs to this crate.
    fn file_of(&self, module: &Module, path: &[String], depth: usize) -> Option<&str> {
        // Limit for cyclic imports; real chains are shorter.
        if depth > 16 {
            return None;
        }
        let mut at = module.clone();
        let mut rest = path;
        while let Some((first, more)) = rest.split_first() {
            match first.as_str() {
                "crate" => at.clear(),
                "self" => {}
                "super" => drop(at.pop()),
                name => {
                    let child = [&at[..], &[name.to_owned()]].concat();
                    if self.modules.contains_key(&child) {
                        at = child;
                    } else {
                        return self.defined(&at, rest, depth);
                    }
                }
            }
            rest = more;
        }
        self.files
            .get(&at)
            .map(String::as_str)
            .filter(|_| at != *module)
    }

    fn defined(&self, at: &Module, path: &[String], depth: usize) -> Option<&str> {
        let names = self.modules.get(at)?;
        let (first, more) = path.split_first()?;
        if names.defined.contains(first) {
            return self.files.get(at).map(String::as_str);
        }
        let further = |from: &Vec<String>| {
            let whole = [&from[..], more].concat();
            // `use store::x` next to a module of that name would resolve to itself.
            (whole != path)
                .then(|| self.file_of(at, &whole, depth + 1))
                .flatten()
        };
        if let Some(from) = names.imported.get(first) {
            return further(from);
        }
        let mut globs = names.globs.iter();
        globs.find_map(|glob| self.file_of(at, &[&glob[..], path].concat(), depth + 1))
    }
}

/// For each node, the nodes that it reaches and that reach it.
fn circles(edges: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
    let reached: BTreeMap<&String, BTreeSet<&String>> = edges
        .keys()
        .map(|file| (file, reach(edges, file)))
        .collect();
    let circle = |file: &String| -> Vec<String> {
        let is_back = |other: &&&String| reached.get(**other).is_some_and(|all| all.contains(file));
        let members = reached[file].iter().filter(is_back);
        members.map(|name| (**name).clone()).collect()
    };
    edges.keys().map(circle).collect()
}

fn reach<'a>(
    edges: &'a BTreeMap<String, BTreeSet<String>>,
    from: &'a String,
) -> BTreeSet<&'a String> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&String> = edges.get(from).into_iter().flatten().collect();
    while let Some(file) = open.pop() {
        if reached.insert(file) {
            open.extend(edges.get(file).into_iter().flatten());
        }
    }
    reached
}

fn is_test(attributes: &[Attribute]) -> bool {
    let is_test = |attribute: &Attribute| {
        let condition = attribute
            .path()
            .is_ident("cfg")
            .then(|| attribute.parse_args::<syn::Ident>());
        condition.is_some_and(|parsed| parsed.is_ok_and(|name| name == "test"))
    };
    attributes.iter().any(is_test)
}

fn imports(item: &ItemUse, names: &mut Names) {
    if is_test(&item.attrs) {
        return;
    }
    let mut left = vec![(Vec::new(), &item.tree)];
    while let Some((mut before, tree)) = left.pop() {
        match tree {
            UseTree::Path(node) => {
                before.push(node.ident.to_string());
                left.push((before, &node.tree));
            }
            UseTree::Group(node) => {
                left.extend(node.items.iter().map(|tree| (before.clone(), tree)))
            }
            UseTree::Glob(_) => names.globs.push(before),
            UseTree::Name(node) => {
                let name = node.ident.to_string();
                let last = before.last().cloned();
                match (name.as_str(), last) {
                    ("self", Some(last)) => names.imported.insert(last, before),
                    _ => {
                        before.push(name.clone());
                        names.imported.insert(name, before)
                    }
                };
            }
            UseTree::Rename(node) => {
                if node.ident != "self" {
                    before.push(node.ident.to_string());
                }
                names.imported.insert(node.rename.to_string(), before);
            }
        }
    }
}

fn name_of(item: &Item) -> Option<String> {
    Some(match item {
        Item::Const(item) => item.ident.to_string(),
        Item::Enum(item) => item.ident.to_string(),
        Item::Fn(item) => item.sig.ident.to_string(),
        Item::Macro(item) => item.ident.as_ref()?.to_string(),
        Item::Static(item) => item.ident.to_string(),
        Item::Struct(item) => item.ident.to_string(),
        Item::Trait(item) => item.ident.to_string(),
        Item::TraitAlias(item) => item.ident.to_string(),
        Item::Type(item) => item.ident.to_string(),
        Item::Union(item) => item.ident.to_string(),
        _ => return None,
    })
}

/// Every path of two or more names, also in the arguments of macros.
#[derive(Default)]
struct Paths {
    paths: BTreeSet<Vec<String>>,
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names = path
            .segments
            .iter()
            .map(|segment| segment.ident.to_string());
        let names: Vec<String> = names.collect();
        if names.len() > 1 {
            self.paths.insert(names);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        let mut names: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in flat(call.tokens.clone()) {
            match token {
                proc_macro2::TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                proc_macro2::TokenTree::Ident(ident) if colons == 2 && !names.is_empty() => {
                    names.push(ident.to_string());
                    colons = 0;
                }
                other => {
                    self.paths
                        .extend((names.len() > 1).then(|| std::mem::take(&mut names)));
                    names.clear();
                    colons = 0;
                    if let proc_macro2::TokenTree::Ident(ident) = other {
                        names.push(ident.to_string());
                    }
                }
            }
        }
        self.paths.extend((names.len() > 1).then_some(names));
        visit::visit_macro(self, call);
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !is_test(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }
}

fn flat(tokens: proc_macro2::TokenStream) -> Vec<proc_macro2::TokenTree> {
    let mut all = Vec::new();
    for token in tokens {
        match token {
            proc_macro2::TokenTree::Group(group) => all.extend(flat(group.stream())),
            other => all.push(other),
        }
    }
    all
}

#[test]
fn a_cycle_through_reexported_names_is_found() {
    let mut sample = Crate::default();
    sample.add("lib.rs", "mod a; mod b; mod c; pub use b::B;");
    sample.add("a.rs", "use super::B; pub struct A(B);");
    sample.add("b.rs", "pub struct B; impl B { fn f() { crate::c::g() } }");
    sample.add(
        "c.rs",
        "use crate::a::A; pub fn g() { let _: Option<A> = None; }",
    );
    assert_eq!(sample.largest_circle(), ["a.rs", "b.rs", "c.rs"]);
    let mut sample = Crate::default();
    sample.add("lib.rs", "mod a; mod b; pub use a::A; pub use b::B;");
    sample.add("a.rs", "use super::B; pub struct A(B);");
    sample.add(
        "b.rs",
        "pub struct B; #[cfg(test)] mod tests { use super::super::A; }",
    );
    assert_eq!(sample.largest_circle(), [] as [&str; 0]);
}

#[test]
fn names_in_macro_arguments_count_as_imports() {
    let mut sample = Crate::default();
    sample.add("lib.rs", "mod a; mod b;");
    sample.add(
        "a.rs",
        "pub const A: u8 = 0; fn f() { println!(\"{}\", [super::b::B; 1].len()) }",
    );
    sample.add("b.rs", "use super::a::*; pub const B: u8 = A;");
    assert_eq!(sample.largest_circle(), ["a.rs", "b.rs"]);
}

#[test]
fn folders_that_import_each_other_form_a_cycle_and_files_of_one_folder_do_not() {
    let mut sample = Crate::default();
    sample.add("lib.rs", "mod a; mod b; pub use a::A;");
    sample.add("a.rs", "mod deep; pub struct A(deep::C);");
    sample.add("a/deep.rs", "pub struct C(crate::b::B, super::A);");
    sample.add("b/mod.rs", "pub struct B; fn f(_: crate::A) {}");
    assert_eq!(sample.largest_folder_circle(), ["a", "b"]);
    let mut sample = Crate::default();
    sample.add("lib.rs", "mod a; mod b; pub use b::B;");
    sample.add("a.rs", "mod deep; pub struct A(deep::C);");
    sample.add("a/deep.rs", "pub struct C(crate::b::B, super::A);");
    sample.add("b/mod.rs", "pub struct B;");
    assert_eq!(sample.largest_folder_circle(), [] as [&str; 0]);
    let mut sample = Crate::default();
    sample.add("lib.rs", "mod a; mod b;");
    sample.add("a/mod.rs", "pub struct A; #[cfg(test)] mod vectors;");
    sample.add("a/vectors.rs", "use crate::b::B;");
    sample.add("b/mod.rs", "pub struct B(crate::a::A);");
    assert_eq!(sample.largest_folder_circle(), [] as [&str; 0]);
}
