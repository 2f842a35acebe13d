//! A deserializer that wraps another one: it records the path of the first error, and skips the values at given paths, which
//! reports every wrong value of a file. `serde_path_to_error` records the path only; skipping needs the same wrapper once more.

use std::cell::RefCell;
use std::fmt;

use serde::de::value::StringDeserializer;
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, IgnoredAny, IntoDeserializer, MapAccess,
    SeqAccess, VariantAccess, Visitor,
};

use super::SkippedPaths;

/// The paths to skip, such as `inventory.devices[0].memory`, and the path of the first error.
pub(crate) struct Tracker<'l> {
    left_out: &'l SkippedPaths,
    failed_at: RefCell<Option<String>>,
}

impl<'l> Tracker<'l> {
    pub fn new(left_out: &'l SkippedPaths) -> Tracker<'l> {
        Tracker {
            left_out,
            failed_at: RefCell::new(None),
        }
    }

    /// The path of the first error since the last call; empty for the complete document.
    pub fn take_failure(&self) -> Option<String> {
        self.failed_at.borrow_mut().take()
    }

    /// Starts tracking at the root of a document.
    pub fn track<D>(&self, inner: D) -> Tracked<'_, D> {
        Tracked {
            inner,
            path: String::new(),
            tracker: self,
        }
    }

    /// Errors pass through every level on their way up; the first level is the location of the error.
    fn note<E>(&self, path: &str) -> impl FnOnce(E) -> E {
        self.failed_at
            .borrow_mut()
            .get_or_insert_with(|| path.to_owned());
        |error| error
    }
}

/// A deserializer, visitor, seed or access at a path.
pub(crate) struct Tracked<'t, T> {
    inner: T,
    path: String,
    tracker: &'t Tracker<'t>,
}

impl<'t, T> Tracked<'t, T> {
    fn with<U>(&self, inner: U) -> Tracked<'t, U> {
        self.below(inner, self.path.clone())
    }

    fn below<U>(&self, inner: U, path: String) -> Tracked<'t, U> {
        Tracked {
            inner,
            path,
            tracker: self.tracker,
        }
    }
}

macro_rules! forward_deserialize {
    ($($method:ident($($argument:ident: $type:ty),*),)*) => {$(
        fn $method<V: Visitor<'de>>(
            self,
            $($argument: $type,)*
            visitor: V,
        ) -> Result<V::Value, D::Error> {
            let visitor = self.with(visitor);
            self.inner
                .$method($($argument,)* visitor)
                .map_err(|error| self.tracker.note(&self.path)(error))
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Tracked<'_, D> {
    type Error = D::Error;

    forward_deserialize! {
        deserialize_any(), deserialize_bool(), deserialize_i8(), deserialize_i16(), deserialize_i32(),
        deserialize_i64(), deserialize_i128(), deserialize_u8(), deserialize_u16(), deserialize_u32(),
        deserialize_u64(), deserialize_u128(), deserialize_f32(), deserialize_f64(), deserialize_char(),
        deserialize_str(), deserialize_string(), deserialize_bytes(), deserialize_byte_buf(),
        deserialize_option(), deserialize_unit(), deserialize_unit_struct(name: &'static str),
        deserialize_newtype_struct(name: &'static str), deserialize_seq(), deserialize_tuple(len: usize),
        deserialize_tuple_struct(name: &'static str, len: usize), deserialize_map(),
        deserialize_struct(name: &'static str, fields: &'static [&'static str]),
        deserialize_enum(name: &'static str, variants: &'static [&'static str]),
        deserialize_identifier(), deserialize_ignored_any(),
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

macro_rules! forward_visit {
    ($($method:ident($($type:ty)?),)*) => {$(
        fn $method<E: Error>(self, $(value: $type)?) -> Result<V::Value, E> {
            self.inner.$method($({ let value: $type = value; value })?)
        }
    )*};
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Tracked<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    forward_visit! {
        visit_bool(bool), visit_i8(i8), visit_i16(i16), visit_i32(i32), visit_i64(i64), visit_i128(i128),
        visit_u8(u8), visit_u16(u16), visit_u32(u32), visit_u64(u64), visit_u128(u128), visit_f32(f32),
        visit_f64(f64), visit_char(char), visit_str(&str), visit_borrowed_str(&'de str),
        visit_string(String), visit_bytes(&[u8]), visit_borrowed_bytes(&'de [u8]),
        visit_byte_buf(Vec<u8>), visit_none(), visit_unit(),
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        let deserializer = self.with(deserializer);
        self.inner.visit_some(deserializer)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(
        self,
        deserializer: D,
    ) -> Result<V::Value, D::Error> {
        let deserializer = self.with(deserializer);
        self.inner.visit_newtype_struct(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, entries: A) -> Result<V::Value, A::Error> {
        let entries = self.with(Entries {
            access: entries,
            next: 0,
        });
        self.inner.visit_seq(entries)
    }

    fn visit_map<A: MapAccess<'de>>(self, keys: A) -> Result<V::Value, A::Error> {
        let keys = self.with(Keys {
            access: keys,
            current: String::new(),
        });
        self.inner.visit_map(keys)
    }

    fn visit_enum<A: EnumAccess<'de>>(self, variant: A) -> Result<V::Value, A::Error> {
        let variant = self.with(variant);
        self.inner.visit_enum(variant)
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Tracked<'_, S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        let deserializer = self.with(deserializer);
        self.inner.deserialize(deserializer)
    }
}

/// The entries of a list.
struct Entries<A> {
    access: A,
    next: usize,
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Tracked<'_, Entries<A>> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        loop {
            let path = format!("{}[{}]", self.path, self.inner.next);
            self.inner.next += 1;
            if !self.tracker.left_out.contains(&path) {
                let seed = self.below(seed, path.clone());
                let entry = self.inner.access.next_element_seed(seed);
                return entry.map_err(|error| self.tracker.note(&path)(error));
            }
            if self.inner.access.next_element::<IgnoredAny>()?.is_none() {
                return Ok(None);
            }
        }
    }
}

/// The keys of a mapping.
struct Keys<A> {
    access: A,
    /// The path of the next value.
    current: String,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Tracked<'_, Keys<A>> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        loop {
            let Some(key) = self.inner.access.next_key::<String>()? else {
                return Ok(None);
            };
            self.inner.current = match self.path.as_str() {
                "" => key.clone(),
                path => format!("{path}.{key}"),
            };
            if self.tracker.left_out.contains(&self.inner.current) {
                self.inner.access.next_value::<IgnoredAny>()?;
                continue;
            }
            let key: StringDeserializer<A::Error> = key.into_deserializer();
            return seed
                .deserialize(key)
                .map(Some)
                .map_err(|error| self.tracker.note(&self.inner.current)(error));
        }
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        let seed = self.below(seed, self.inner.current.clone());
        let value = self.inner.access.next_value_seed(seed);
        value.map_err(|error| self.tracker.note(&self.inner.current)(error))
    }
}

impl<'de, 't, A: EnumAccess<'de>> EnumAccess<'de> for Tracked<'t, A> {
    type Error = A::Error;
    type Variant = Tracked<'t, A::Variant>;

    fn variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<(S::Value, Self::Variant), A::Error> {
        let Tracked {
            inner,
            path,
            tracker,
        } = self;
        let (value, inner) = inner.variant_seed(seed)?;
        Ok((
            value,
            Tracked {
                inner,
                path,
                tracker,
            },
        ))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Tracked<'_, A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.inner.unit_variant()
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, A::Error> {
        let seed = self.with(seed);
        self.inner.newtype_variant_seed(seed)
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, A::Error> {
        let visitor = self.with(visitor);
        self.inner.tuple_variant(len, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        let visitor = self.with(visitor);
        self.inner.struct_variant(fields, visitor)
    }
}
