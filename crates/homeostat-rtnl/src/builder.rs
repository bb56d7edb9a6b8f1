//! Builds a desired state from typed parts.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

use homeostat_core::{DuplicateKey, Fingerprint};

use crate::address::{self, Address};
use crate::desired::{Declared, DesiredAddress, DesiredState, Shape};
use crate::key::{AddressKey, Key, RouteKey};
use crate::link::LinkName;
use crate::links;
use crate::links::desired::{DesiredField, DesiredLink};
use crate::links::model::{Link, Settings};
use crate::links::normalize::BadLink;
use crate::model::Object;
use crate::neighbour::{self, Neighbour, NeighbourKey};
use crate::nexthop::{self, Nexthop, NexthopId};
use crate::normalize::Impossible;
use crate::recent::Recent;
use crate::route::{self, Route};
use crate::row::Row;
use crate::rule::{self, Rule, RuleKey};

/// Why a desired state is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DesiredError {
    /// One key stands there twice.
    #[error(transparent)]
    Twice(#[from] DuplicateKey),
    /// An object that can never be.
    #[error("`{key}` cannot be")]
    Impossible {
        /// Its key.
        key: Key,
        /// Why.
        #[source]
        why: Impossible,
    },
}

/// A desired state in the making.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    desired: DesiredState,
    shapes: HashMap<Route, u32>,
    recent: Recent,
    adopt: BTreeSet<Key>,
}

impl Builder {
    /// Desired states an address.
    pub fn address(
        &mut self,
        key: AddressKey,
        address: Address,
    ) -> Result<&mut Self, DesiredError> {
        let impossible = |why| DesiredError::Impossible { key: key.into(), why };
        let address = address::normalize(&key, address).map_err(impossible)?;
        self.desired.addresses.push(DesiredAddress { key, address, may_adopt: false });
        Ok(self)
    }

    /// Desired states a route.
    pub fn route(&mut self, key: RouteKey, route: Route) -> Result<&mut Self, DesiredError> {
        let impossible = |why| DesiredError::Impossible { key: key.into(), why };
        let route = route::normalize(&key, route).map_err(impossible)?;
        self.push(&key, route, false);
        Ok(self)
    }

    /// Desired states a route that may be taken from anybody. For lists: [`may_adopt`](Self::may_adopt)
    /// remembers key by key.
    pub fn adopting_route(
        &mut self,
        key: RouteKey,
        route: Route,
    ) -> Result<&mut Self, DesiredError> {
        let impossible = |why| DesiredError::Impossible { key: key.into(), why };
        let route = route::normalize(&key, route).map_err(impossible)?;
        self.push(&key, route, true);
        Ok(self)
    }

    fn push(&mut self, key: &RouteKey, route: Route, may_adopt: bool) {
        let shape = self.shape(route);
        match key.dst().addr() {
            IpAddr::V4(dst) => {
                self.desired.v4.push(Row { may_adopt, ..Row::new(key, dst.to_bits(), shape) });
            }
            IpAddr::V6(dst) => {
                self.desired.v6.push(Row { may_adopt, ..Row::new(key, dst.to_bits(), shape) });
            }
        }
    }

    /// Desired states a nexthop.
    pub fn nexthop(&mut self, id: NexthopId, nexthop: Nexthop) -> Result<&mut Self, DesiredError> {
        self.other(Key::Nexthop(id), nexthop::normalize(id, nexthop).map(Object::Nexthop))
    }

    /// Desired states a rule. Without a priority the kernel chooses one.
    pub fn rule(&mut self, key: RuleKey, rule: Rule) -> Result<&mut Self, DesiredError> {
        let rule = rule::normalize(&key, rule).map(Object::Rule);
        self.other(Key::Rule(Box::new(key)), rule)
    }

    /// Desired states a permanent neighbour, or a proxy entry.
    pub fn neighbour(
        &mut self,
        key: NeighbourKey,
        neighbour: Neighbour,
    ) -> Result<&mut Self, DesiredError> {
        let neighbour = neighbour::normalize(&key, neighbour).map(Object::Neighbour);
        self.other(Key::Neighbour(key), neighbour)
    }

    fn other(
        &mut self,
        key: Key,
        object: Result<Object, Impossible>,
    ) -> Result<&mut Self, DesiredError> {
        let object = match object {
            Ok(object) => object,
            Err(why) => return Err(DesiredError::Impossible { key, why }),
        };
        self.desired.others.push(Declared { key, object, may_adopt: false });
        Ok(self)
    }

    /// Desired states a link that is made and owned.
    pub fn link(&mut self, name: LinkName, link: Link) -> Result<&mut Self, DesiredError> {
        let impossible =
            |why| DesiredError::Impossible { key: Key::Link(name), why: Impossible::Link(why) };
        let link = links::normalize::link(name, link).map_err(impossible)?;
        self.desired.links.made.push(DesiredLink { name, link, may_adopt: false });
        Ok(self)
    }

    /// Desired states some fields of a link that somebody else makes.
    pub fn configure(&mut self, name: LinkName, set: Settings) -> Result<&mut Self, DesiredError> {
        let impossible =
            |why| DesiredError::Impossible { key: Key::Link(name), why: Impossible::Link(why) };
        links::normalize::settings(name, &set).map_err(impossible)?;
        let fields = set.each().map(|(field, setting)| DesiredField { name, field, setting });
        self.desired.links.fields.extend(fields);
        Ok(self)
    }

    /// Gives standing leave to take a declared key from anybody.
    pub fn may_adopt(&mut self, key: impl Into<Key>) -> &mut Self {
        self.adopt.insert(key.into());
        self
    }

    /// Sorts the desired states; refuses a key that stands there twice.
    pub fn build(mut self) -> Result<DesiredState, DesiredError> {
        self.desired.addresses.sort_unstable_by_key(|desired| desired.key);
        self.desired.v4.sort_unstable_by_key(Row::<u32>::packed);
        self.desired.v6.sort_unstable_by_key(Row::<u128>::packed);
        self.desired.others.sort_by(|a, b| a.key.cmp(&b.key));
        self.check_unique()?;
        self.check_links()?;
        self.rest_shapes();
        self.mark_adopted();
        self.index_shapes();
        let DesiredState { addresses, v4, v6, others, shapes, .. } = &mut self.desired;
        addresses.shrink_to_fit();
        v4.shrink_to_fit();
        v6.shrink_to_fit();
        others.shrink_to_fit();
        shapes.shrink_to_fit();
        Ok(self.desired)
    }

    fn shape(&mut self, route: Route) -> u32 {
        let known = &self.desired.shapes;
        let is_known = |shape: u32| known.get(shape as usize).is_some_and(|s| s.route == route);
        let mut guess = self.recent.guess(&route);
        if let Some(shape) = guess.as_deref().copied().filter(|shape| is_known(*shape)) {
            return shape;
        }
        let next = u32::try_from(known.len()).unwrap_or(u32::MAX);
        let shape = *self.shapes.entry(route.clone()).or_insert(next);
        if shape == next {
            let print = Fingerprint::of_object(&route);
            self.desired.shapes.push(Shape { route, print, rests_on: Vec::new(), rows: 0..0 });
        }
        if let Some(guess) = &mut guess {
            **guess = shape;
        }
        shape
    }

    fn check_unique(&self) -> Result<(), DuplicateKey> {
        let DesiredState { addresses, v4, v6, others, .. } = &self.desired;
        let address = addresses.array_windows().find(|[a, b]| a.key == b.key);
        let v4 = v4.array_windows().find(|[a, b]| a.compare(b).is_eq());
        let v6 = v6.array_windows().find(|[a, b]| a.compare(b).is_eq());
        let other = others.array_windows().find(|[a, b]| a.key == b.key);
        let other = other.map(|[one, _]| one.key.clone());
        let address = address.map(|[one, _]| Key::from(one.key));
        let route = v4.map(|[one, _]| one.key()).or_else(|| v6.map(|[one, _]| one.key()));
        match address.or_else(|| route.map(Key::from)).or(other) {
            Some(key) => Err(DuplicateKey { key: key.to_string() }),
            None => Ok(()),
        }
    }

    fn check_links(&mut self) -> Result<(), DesiredError> {
        if let Some(key) = self.desired.links.sort() {
            return Err(DuplicateKey { key: key.to_string() }.into());
        }
        match self.desired.links.made_twice() {
            Some(key) => {
                let why = Impossible::Link(BadLink::MadeElsewhere);
                Err(DesiredError::Impossible { key, why })
            }
            None => Ok(()),
        }
    }

    fn rest_shapes(&mut self) {
        let DesiredState { addresses, shapes, .. } = &mut self.desired;
        for Shape { route, rests_on, .. } in shapes {
            let keys = addresses.iter().map(|desired| desired.key);
            *rests_on = keys.filter(|key| route::route_rests_on(route, key)).collect();
        }
    }

    /// Lists the routes of each shape, in one sweep over all of them.
    fn index_shapes(&mut self) {
        let DesiredState { v4, v6, shapes, by_shape, .. } = &mut self.desired;
        let of = || v4.iter().map(|row| row.shape).chain(v6.iter().map(|row| row.shape));
        let mut counts = vec![0_usize; shapes.len()];
        for shape in of() {
            if let Some(count) = counts.get_mut(shape as usize) {
                *count += 1;
            }
        }
        let mut start = 0;
        for (shape, count) in shapes.iter_mut().zip(counts) {
            shape.rows = start..start;
            start += count;
        }
        *by_shape = vec![0; start];
        for (number, shape) in (0_u32..).zip(of()) {
            let Some(shape) = shapes.get_mut(shape as usize) else { continue };
            if let Some(place) = by_shape.get_mut(shape.rows.end) {
                *place = number;
            }
            shape.rows.end += 1;
        }
    }

    fn mark_adopted(&mut self) {
        let (adopt, desired) = (&self.adopt, &mut self.desired);
        if adopt.is_empty() {
            return;
        }
        let is_adopted = |key: Key| adopt.contains(&key);
        desired
            .addresses
            .iter_mut()
            .for_each(|desired| desired.may_adopt = is_adopted(desired.key.into()));
        desired.v4.iter_mut().for_each(|row| row.may_adopt |= is_adopted(row.key().into()));
        desired.v6.iter_mut().for_each(|row| row.may_adopt |= is_adopted(row.key().into()));
        desired
            .others
            .iter_mut()
            .for_each(|desired| desired.may_adopt = is_adopted(desired.key.clone()));
        let links = desired.links.made.iter_mut();
        links.for_each(|desired| desired.may_adopt = is_adopted(Key::Link(desired.name)));
    }
}
