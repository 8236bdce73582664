//! A value as the validator sees it, with a meter in between: looking at it costs steps, and when they are
//! used up the value seems to be `null` without members, so that whatever recurses over it comes to its end.
//!
//! A schema may ask the same value again and again, exponentially often in its depth (`$dynamicRef`, or any
//! branch that has to be explained). Nothing in the validator bounds that; the meter does.

use std::borrow::Cow;
use std::cell::Cell;

use jsonschema::JsonType;
use jsonschema::json::{Array, Json, Node, NodeIdentity, Object, SerdeJson};
use serde_json::{Map, Value};

/// How much one run may still look at.
#[derive(Debug)]
pub(super) struct Meter {
    steps: Cell<u64>,
    work: Cell<u64>,
    /// What matching one byte of a string against the schema's dearest pattern may cost.
    text_weight: u64,
    /// What matching one byte of a member name against all patterns for names may cost.
    name_weight: u64,
}

impl Meter {
    /// `steps` looks, and `work` in units of [`WORK_UNIT`].
    pub(super) const fn new(steps: u64, work: u64, text_weight: u64, name_weight: u64) -> Self {
        Self {
            steps: Cell::new(steps),
            work: Cell::new(work),
            text_weight,
            name_weight,
        }
    }

    /// Whether the run saw everything it asked for; otherwise its outcome means nothing.
    pub(super) fn lasted(&self) -> bool {
        self.steps.get() > 0 && self.work.get() > 0
    }

    fn step(&self) -> bool {
        let left = self.steps.get().saturating_sub(1);
        self.steps.set(left);
        left > 0 && self.work.get() > 0
    }

    fn bytes(&self, count: usize, weight: u64) -> bool {
        let bytes = u64::try_from(count).unwrap_or(u64::MAX);
        // A byte is at least looked at, 64 of them in the time of one unit.
        let cost = bytes
            .saturating_mul(weight.max(WORK_UNIT / 64))
            .div_ceil(WORK_UNIT);
        let left = self.work.get().saturating_sub(cost);
        self.work.set(left);
        left > 0
    }
}

/// One unit of work: a byte of text against this many bytes of a compiled pattern, some ten nanoseconds.
pub(super) const WORK_UNIT: u64 = 1024;

/// The representation.
pub(super) struct Metered;

/// One value. Without a meter it is a member name, which is paid for by the object it is in.
#[derive(Clone, Copy)]
pub(super) struct Seen<'a> {
    value: &'a Value,
    meter: Option<&'a Meter>,
}

impl<'a> Seen<'a> {
    pub(super) const fn new(value: &'a Value, meter: &'a Meter) -> Self {
        Self {
            value,
            meter: Some(meter),
        }
    }

    /// The value, while steps are left.
    fn look(&self) -> &'a Value {
        const NOTHING: &Value = &Value::Null;
        if self.meter.is_none_or(Meter::step) {
            self.value
        } else {
            NOTHING
        }
    }
}

impl Json for Metered {
    type Node<'a> = Seen<'a>;
    type PreparedKey = String;
    type StringBuffer = Value;

    const KEYS_PER_LOOKUP: usize = SerdeJson::KEYS_PER_LOOKUP;
    const ACYCLIC: bool = true;

    fn prepare_key(key: &str) -> String {
        key.to_owned()
    }

    fn with_string_node<T>(buffer: &mut Value, string: &str, f: impl FnOnce(Seen<'_>) -> T) -> T {
        *buffer = Value::String(string.to_owned());
        f(Seen {
            value: buffer,
            meter: None,
        })
    }
}

impl<'a> Node<'a, Metered> for Seen<'a> {
    type Object = Members<'a>;
    type Array = Elements<'a>;
    type Number = &'a serde_json::Number;

    fn as_object(&self) -> Option<Members<'a>> {
        let map = self.look().as_object()?;
        let meter = self.meter?;
        Some(Members { map, meter })
    }

    fn as_array(&self) -> Option<Elements<'a>> {
        let items = self.look().as_array()?;
        let meter = self.meter?;
        Some(Elements { items, meter })
    }

    fn as_string(&self) -> Option<Cow<'a, str>> {
        let text = self.look().as_str()?;
        let paid = self
            .meter
            .is_none_or(|meter| meter.bytes(text.len(), meter.text_weight));
        Some(Cow::Borrowed(if paid { text } else { "" }))
    }

    fn as_number(&self) -> Option<&'a serde_json::Number> {
        self.look().as_number()
    }

    fn as_boolean(&self) -> Option<bool> {
        self.look().as_bool()
    }

    fn is_null(&self) -> bool {
        self.look().is_null()
    }

    fn json_type(&self) -> JsonType {
        self.look().json_type()
    }

    fn string_length(&self) -> Option<u64> {
        let value = self.look();
        if let (Some(text), Some(meter)) = (value.as_str(), self.meter) {
            meter.bytes(text.len(), 0);
        }
        Node::<SerdeJson>::string_length(&value)
    }

    fn string_length_within(&self, min: u64, max: u64) -> Option<bool> {
        let value = self.look();
        if let (Some(text), Some(meter)) = (value.as_str(), self.meter) {
            meter.bytes(text.len(), 0);
        }
        Node::<SerdeJson>::string_length_within(&value, min, max)
    }

    /// Compared as a whole, so what is compared is paid for by its size.
    fn equals_value(&self, expected: &Value) -> bool {
        let value = self.look();
        if let Some(meter) = self.meter {
            if value.is_object() || value.is_array() {
                meter.bytes(size(expected), WORK_UNIT);
            }
        }
        Node::<SerdeJson>::equals_value(&value, expected)
    }

    /// Only errors ask for it, and a nest of alternatives would copy the same value once for each of them.
    fn to_value(&self) -> Cow<'a, Value> {
        Cow::Borrowed(&Value::Null)
    }

    fn identity(&self) -> Option<NodeIdentity> {
        Some(NodeIdentity::new(std::ptr::from_ref(self.value) as usize))
    }

    fn container_identity(&self) -> Option<NodeIdentity> {
        if self.value.is_object() || self.value.is_array() {
            self.identity()
        } else {
            None
        }
    }
}

/// Values in a value.
fn size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 1,
        Value::Array(items) => 1 + items.iter().map(size).sum::<usize>(),
        Value::Object(map) => 1 + map.values().map(size).sum::<usize>(),
    }
}

/// An object.
pub(super) struct Members<'a> {
    map: &'a Map<String, Value>,
    meter: &'a Meter,
}

impl<'a> Object<'a, Metered> for Members<'a> {
    type Node = Seen<'a>;
    type MemberName = &'a str;
    type MembersIter = MembersIter<'a>;

    fn len(&self) -> usize {
        self.map.len()
    }

    fn get(&self, key: &String) -> Option<Seen<'a>> {
        let value = self.map.get(key)?;
        Some(Seen::new(value, self.meter))
    }

    fn members(&self) -> MembersIter<'a> {
        MembersIter {
            inner: self.map.iter(),
            meter: self.meter,
        }
    }
}

/// The members of an object, as long as steps are left.
pub(super) struct MembersIter<'a> {
    inner: serde_json::map::Iter<'a>,
    meter: &'a Meter,
}

impl<'a> Iterator for MembersIter<'a> {
    type Item = (&'a str, Seen<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let (name, value) = self.inner.next()?;
        let paid = self.meter.step() && self.meter.bytes(name.len(), self.meter.name_weight);
        paid.then(|| (name.as_str(), Seen::new(value, self.meter)))
    }
}

/// An array.
pub(super) struct Elements<'a> {
    items: &'a [Value],
    meter: &'a Meter,
}

impl<'a> Array<'a, Metered> for Elements<'a> {
    type Node = Seen<'a>;
    type ElementsIter = ElementsIter<'a>;

    fn len(&self) -> usize {
        self.items.len()
    }

    fn elements(&self) -> ElementsIter<'a> {
        ElementsIter {
            inner: self.items.iter(),
            meter: self.meter,
        }
    }

    /// Compared by hashes, and arrays that differ in their shape only have the same: then each with each.
    fn is_unique(&self) -> bool {
        let plain = self
            .items
            .iter()
            .all(|item| !item.is_array() && !item.is_object());
        let count = self.items.len();
        let comparisons = if plain {
            count
        } else {
            count.saturating_mul(count / 64 + 1)
        };
        if !self.meter.bytes(comparisons, WORK_UNIT) {
            return true;
        }
        jsonschema::json::unique::is_unique(self.items)
    }
}

/// The elements of an array, as long as steps are left.
pub(super) struct ElementsIter<'a> {
    inner: std::slice::Iter<'a, Value>,
    meter: &'a Meter,
}

impl<'a> Iterator for ElementsIter<'a> {
    type Item = Seen<'a>;

    fn next(&mut self) -> Option<Seen<'a>> {
        let value = self.inner.next()?;
        self.meter.step().then(|| Seen::new(value, self.meter))
    }
}
