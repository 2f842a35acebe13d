//! Obtains the list of a type's keys from the type itself, and the keys that a value sets, which avoids a second copy of the list.

use serde::de::value::Error;
use serde::de::{Deserialize, DeserializeOwned, Deserializer, Visitor};
use serde::{Serialize, forward_to_deserialize_any};
use serde_json::{Map, Value};

/// The keys of a section; empty for a type without fixed keys.
pub(crate) fn fields_of<T: DeserializeOwned>() -> &'static [&'static str] {
    let mut fields: &'static [&'static str] = &[];
    // Only the requested field names matter; the deserializer returns no values.
    let _nothing: Result<T, Error> = Deserialize::deserialize(FieldNames(&mut fields));
    fields
}

/// The keys that a section sets, with their values. Sections leave out absent keys when they are written.
pub(crate) fn given_keys(section: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(section) {
        Ok(Value::Object(keys)) => keys,
        _ => Map::new(),
    }
}

/// A deserializer that records the fields a type requests and returns no values.
struct FieldNames<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for FieldNames<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(serde::de::Error::custom("there are no values"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        *self.0 = fields;
        self.deserialize_any(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::model_file::{EngineConfig, ScalingConfig};

    #[test]
    fn the_keys_of_a_section_match_the_fields_of_its_type() {
        let engine = fields_of::<EngineConfig>();
        assert!(
            engine.contains(&"type") && engine.contains(&"model_id"),
            "{engine:?}"
        );
        assert!(fields_of::<ScalingConfig>().contains(&"num_workers"));
        assert!(fields_of::<Vec<u8>>().is_empty());
    }
}
