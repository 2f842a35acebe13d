//! A JSON object whose fields are taken one at a time. Errors name fields of the wrong type and fields left at the end.

use serde_json::{Map, Value};

use super::translation::Ignored;
use crate::body::Fields;
use crate::shape::may_be_a_tree;
use api_types::error::Failure;

/// Larger numbers do not fit the integers of other languages.
const COUNT_MAX: u64 = i64::MAX as u64;
/// Maximum number of unknown fields to name; the others are counted.
const NAMED_MAX: usize = 8;

/// An object and its path in the request.
pub struct Taken {
    at: String,
    fields: Map<String, Value>,
}

impl Taken {
    /// Parses the entire body, unless it would take too much memory.
    pub fn body(body: &[u8]) -> Result<Taken, Failure> {
        may_be_a_tree(body)?;
        let fields = serde_json::from_slice(body).map_err(|error| {
            let message = format!("the body is not a JSON object: {error}");
            Failure::invalid(None, message)
        })?;
        Ok(Taken {
            at: String::new(),
            fields,
        })
    }

    pub fn new(at: impl Into<String>, value: Value) -> Result<Taken, Failure> {
        let at = at.into();
        match value {
            Value::Object(fields) => Ok(Taken { at, fields }),
            _ => Err(wrong(&at, "an object")),
        }
    }

    /// Parses some fields of a body.
    pub fn some(all: &Fields<'_>, names: &[&str]) -> Result<Taken, Failure> {
        let mut fields = Map::new();
        for name in names {
            let Some(value) = all.get(name) else {
                continue;
            };
            may_be_a_tree(value.get().as_bytes())?;
            let value = serde_json::from_str(value.get()).map_err(|error| {
                Failure::invalid((*name).to_owned(), format!("`{name}`: {error}"))
            })?;
            fields.insert((*name).to_owned(), value);
        }
        Ok(Taken {
            at: String::new(),
            fields,
        })
    }

    /// The path of a field, such as `messages[0].content`.
    pub fn path(&self, name: &str) -> String {
        match self.at.as_str() {
            "" => name.to_owned(),
            at => format!("{at}.{name}"),
        }
    }

    /// Takes a field. `null` counts as absent.
    pub fn take(&mut self, name: &str) -> Option<Value> {
        #[cfg(feature = "record-fields")]
        record::note(self.path(name));
        // Leaves null in its place: removal would shift all later fields.
        let value = self.fields.get_mut(name).map(Value::take);
        value.filter(|value| !value.is_null())
    }

    /// Returns true if a field is present and not `null`.
    pub fn has(&self, name: &str) -> bool {
        self.fields.get(name).is_some_and(|value| !value.is_null())
    }

    pub fn need(&mut self, name: &str) -> Result<Value, Failure> {
        self.take(name).ok_or_else(|| self.missing(name))
    }

    pub fn text(&mut self, name: &str) -> Result<Option<String>, Failure> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.wrong(name, "a string")),
        }
    }

    pub fn need_text(&mut self, name: &str) -> Result<String, Failure> {
        self.text(name)?.ok_or_else(|| self.missing(name))
    }

    pub fn flag(&mut self, name: &str) -> Result<Option<bool>, Failure> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(flag)),
            Some(_) => Err(self.wrong(name, "true or false")),
        }
    }

    pub fn number(&mut self, name: &str) -> Result<Option<Value>, Failure> {
        match self.take(name) {
            Some(value) if !value.is_number() => Err(self.wrong(name, "a number")),
            value => Ok(value),
        }
    }

    /// Takes an integer of at least 1.
    pub fn count(&mut self, name: &str) -> Result<Option<u64>, Failure> {
        match self.take(name) {
            None => Ok(None),
            Some(value) => match integer_of(&value).filter(|count| (1..=COUNT_MAX).contains(count))
            {
                Some(count) => Ok(Some(count)),
                None => Err(self.wrong(name, "a whole number from 1")),
            },
        }
    }

    /// Takes an integer from 0 to `most`.
    pub(crate) fn count_from_0(&mut self, name: &str, most: u64) -> Result<Option<u64>, Failure> {
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        match integer_of(&value).filter(|count| *count <= most) {
            Some(count) => Ok(Some(count)),
            None => Err(self.wrong(name, &format!("a whole number from 0 to {most}"))),
        }
    }

    pub fn list(&mut self, name: &str) -> Result<Option<Vec<Value>>, Failure> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Array(list)) => Ok(Some(list)),
            Some(_) => Err(self.wrong(name, "a list")),
        }
    }

    pub fn object(&mut self, name: &str) -> Result<Option<Taken>, Failure> {
        let at = self.path(name);
        self.take(name)
            .map(|value| Taken::new(at, value))
            .transpose()
    }

    /// Takes a string that must be in `choices`.
    pub(crate) fn one_of(
        &mut self,
        name: &str,
        choices: &[&'static str],
    ) -> Result<Option<&'static str>, Failure> {
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        let found = choices.iter().find(|word| value == **word);
        match found {
            Some(word) => Ok(Some(word)),
            None => Err(self.wrong(name, &format!("one of {}", choices.join(", ")))),
        }
    }

    /// Takes a hint. A value that is not in `choices` has no effect, and the field is reported as ignored.
    pub fn hint(
        &mut self,
        name: &str,
        choices: &[&'static str],
        ignored: &mut Ignored,
    ) -> Result<Option<&'static str>, Failure> {
        let Some(word) = self.text(name)? else {
            return Ok(None);
        };
        let found = choices.iter().find(|choice| word == **choice).copied();
        if found.is_none() && !word.is_empty() {
            ignored.add(unnumbered(&self.path(name)));
        }
        Ok(found)
    }

    /// Refuses a field that cannot be honoured, except with a value in `idle`.
    pub fn refuse(&mut self, name: &str, idle: &[Value], why: &str) -> Result<(), Failure> {
        match self.take(name) {
            Some(value) if !idle.contains(&value) => Err(self.not_here(name, why)),
            _ => Ok(()),
        }
    }

    pub fn not_here(&self, name: &str, why: &str) -> Failure {
        let path = self.path(name);
        Failure::invalid(
            path.clone(),
            format!("`{path}` is not supported here: {why}"),
        )
    }

    pub fn wrong(&self, name: &str, wanted: &str) -> Failure {
        wrong(&self.path(name), wanted)
    }

    pub fn missing(&self, name: &str) -> Failure {
        let path = self.path(name);
        Failure::invalid(path.clone(), format!("`{path}` is required"))
    }

    /// Paths of the remaining fields that have an effect.
    pub fn left(self) -> Vec<String> {
        let left = self.fields.iter().filter(|(_, value)| has_effect(value));
        left.map(|(name, _)| self.path(name)).collect()
    }

    /// Paths of the fields that were not taken.
    pub fn unknown(&self) -> Vec<String> {
        let left = self.fields.iter().filter(|(_, value)| !value.is_null());
        left.map(|(name, _)| self.path(name)).collect()
    }

    /// Reports the remaining fields with an effect as ignored. For objects within the request: clients add fields to messages,
    /// which must not end a conversation.
    pub(crate) fn drop_rest(self, ignored: &mut Ignored) {
        for path in self.left() {
            ignored.add(unnumbered(&path));
        }
    }

    /// Refuses the remaining fields as unknown.
    pub fn finish(self) -> Result<(), Failure> {
        refuse_unknown(&self.unknown())
    }
}

/// Refuses unknown fields by name.
pub fn refuse_unknown(left: &[String]) -> Result<(), Failure> {
    let Some(first) = left.first() else {
        return Ok(());
    };
    let named = &left[..left.len().min(NAMED_MAX)];
    let more = match left.len() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let mut failure = Failure::invalid(
        first.clone(),
        format!("unknown field: {}{more}; remove it", named.join(", ")),
    );
    failure.body.error.code = Some("unknown_parameter");
    Err(failure)
}

/// `messages.content.id` for `messages[3].content[0].id`.
fn unnumbered(path: &str) -> String {
    let mut parts = path.split('[');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |path, part| {
        path + part.split_once(']').map_or(part, |(_, rest)| rest)
    })
}

/// Returns true unless the value is null, false or empty.
pub fn has_effect(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        Value::Bool(true) | Value::Number(_) => true,
    }
}

/// JSON has a single number type; an integer may be written as 2.0.
fn integer_of(value: &Value) -> Option<u64> {
    const EXACT_MAX: f64 = 9e15;
    let of_float = |number: f64| {
        let is_integer = number.fract() == 0.0 && (0.0..=EXACT_MAX).contains(&number);
        is_integer.then_some(number as u64)
    };
    value.as_u64().or_else(|| value.as_f64().and_then(of_float))
}

fn wrong(path: &str, wanted: &str) -> Failure {
    Failure::invalid(path.to_owned(), format!("`{path}` must be {wanted}"))
}

#[cfg(feature = "record-fields")]
pub use record::fields_read_during;

/// Records the fields that are read, for tests that compare them with the API's description.
#[cfg(feature = "record-fields")]
mod record {
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    thread_local! {
        static READ: RefCell<Option<BTreeSet<String>>> = const { RefCell::new(None) };
    }

    pub(super) fn note(path: String) {
        READ.with_borrow_mut(|read| read.as_mut().map(|read| read.insert(path)));
    }

    /// Returns the paths of the fields that are taken while `work` runs.
    pub fn fields_read_during(work: impl FnOnce()) -> BTreeSet<String> {
        READ.set(Some(BTreeSet::new()));
        work();
        READ.take().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_invalid_missing_or_unknown_field_is_reported_with_its_full_path() {
        let value = json!({"a": 1, "n": null, "x": true, "y": 0});
        let mut taken = Taken::new("messages[2]", value).unwrap();
        let param = |failure: Failure| failure.body.error.param.unwrap();
        assert_eq!(param(taken.text("a").unwrap_err()), "messages[2].a");
        assert_eq!(taken.text("n").unwrap(), None);
        assert_eq!(param(taken.need_text("b").unwrap_err()), "messages[2].b");
        assert_eq!(param(taken.count("y").unwrap_err()), "messages[2].y");
        let failure = taken.finish().unwrap_err();
        assert!(failure.body.error.message.contains("messages[2].x"));
        assert!(Taken::new("z", json!([])).is_err());
        assert!(Taken::body(b"[]").is_err());
    }

    #[test]
    fn counts_may_be_written_as_floats_but_must_be_integers() {
        let value = json!({"a": 2.0, "b": 2.5, "c": -2.0, "d": 1e300, "e": u64::MAX, "f": 0.0});
        let mut taken = Taken::new("", value).unwrap();
        assert_eq!(taken.count("a").unwrap(), Some(2));
        for name in ["b", "c", "d", "e"] {
            assert!(taken.count(name).is_err(), "{name}");
        }
        assert_eq!(taken.count_from_0("f", 20).unwrap(), Some(0));
    }

    #[test]
    fn leftover_fields_are_reported_unless_their_value_is_empty() {
        let value = json!({"a": 1, "b": false, "c": "", "d": [], "e": {}, "f": null, "g": "x"});
        let mut taken = Taken::new("options", value).unwrap();
        taken.take("a");
        assert_eq!(taken.left(), ["options.g"]);
    }

    #[test]
    fn ignored_values_and_fields_are_reported_without_indices_and_bounded() {
        let value = json!({"type": "forever", "mine": {"a": 1}, "n": null, "e": []});
        let mut taken = Taken::new("messages[12].content[3]", value).unwrap();
        let mut ignored = Ignored::default();
        assert_eq!(
            taken.hint("type", &["ephemeral"], &mut ignored).unwrap(),
            None
        );
        assert!(taken.hint("mine", &["a"], &mut ignored).is_err());
        taken.drop_rest(&mut ignored);
        let mut again = Taken::new("messages[9].content[0]", json!({"mine": 1})).unwrap();
        assert_eq!(again.hint("n", &["a"], &mut ignored).unwrap(), None);
        again.drop_rest(&mut ignored);
        assert_eq!(
            ignored.clone().names(),
            ["messages.content.type", "messages.content.mine"]
        );
        for nth in 0..1000 {
            ignored.add(format!("field{nth}"));
        }
        assert!(ignored.names().len() < 100);
    }

    #[test]
    fn an_unsupported_field_is_refused_unless_its_value_has_no_effect() {
        let mut taken = Taken::new("", json!({"a": "off", "b": "on"})).unwrap();
        taken.refuse("a", &[json!("off")], "no").unwrap();
        let failure = taken
            .refuse("b", &[json!("off")], "it has no place")
            .unwrap_err();
        assert!(failure.body.error.message.contains("it has no place"));
    }
}
