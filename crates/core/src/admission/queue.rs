//! Requests that wait for a lease, and their order.

#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::drr::Rotation;
use super::{AdmissionSettings, ClassId, ClassSettings, TenantId};
use crate::{Instant, RequestId};

/// One placement in so many goes to the oldest request that has waited longer than the aging time.
pub const AGED_ONE_IN: u32 = 8;

/// A request that waits, or wants to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Waiting {
    /// Which.
    pub request: RequestId,
    /// Of which class.
    pub class: ClassId,
    /// Whose.
    pub tenant: TenantId,
    /// Among its tenant's requests a lower number is served first.
    pub priority: i32,
    /// Tokens of prompt and answer.
    pub cost: u64,
    /// It is turned away then.
    pub until: Instant,
}

/// A bound that is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Full {
    /// So many wait in all.
    Queue(usize),
    /// So many of the class wait.
    Class(usize),
    /// So many of the tenant wait in the class.
    Tenant(usize),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Entry {
    waiting: Waiting,
    since: Instant,
    /// Counts arrivals.
    number: u64,
    /// Requests that were placed while this one was first and found no room.
    overtaken: u32,
    /// It has had its turn, and came back.
    returned: bool,
}

/// One tenant's requests of one class.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Flow {
    weight: u32,
    /// By priority, then arrival.
    requests: BTreeMap<(i32, u64), RequestId>,
    tokens: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Class {
    priority: u16,
    weight: u32,
    queue: usize,
    tenant_queue: usize,
    flows: BTreeMap<TenantId, Flow>,
    turns: Rotation<TenantId>,
    arrivals: BTreeMap<u64, RequestId>,
    tokens: u64,
}

impl Class {
    const fn new(settings: &ClassSettings) -> Self {
        Self {
            priority: settings.priority,
            weight: settings.weight,
            queue: settings.queue,
            tenant_queue: settings.tenant_queue,
            flows: BTreeMap::new(),
            turns: Rotation::new(),
            arrivals: BTreeMap::new(),
            tokens: 0,
        }
    }

    fn follow(&mut self, own: &ClassSettings, all: &AdmissionSettings) {
        self.priority = own.priority;
        self.weight = own.weight;
        self.queue = own.queue;
        self.tenant_queue = own.tenant_queue;
        self.turns = Rotation::new();
        for (tenant, flow) in &mut self.flows {
            flow.weight = all.tenant(tenant).weight;
            self.turns.enter(tenant.clone(), flow.weight);
        }
    }
}

/// The queue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Queue {
    most: usize,
    aging: Duration,
    classes: Vec<Class>,
    /// Classes that have requests, by priority.
    bands: BTreeMap<u16, Rotation<ClassId>>,
    entries: BTreeMap<RequestId, Entry>,
    /// Those that had their turn and came back: they are first again.
    returned: VecDeque<RequestId>,
    by_age: BTreeMap<u64, RequestId>,
    by_deadline: BTreeSet<(Instant, RequestId)>,
    arrivals: u64,
    /// Placements since the last one of an aged request, while there was one.
    since_aged: u32,
}

impl Queue {
    /// An empty queue.
    #[must_use]
    pub fn new(settings: &AdmissionSettings) -> Self {
        Self {
            most: settings.queue,
            aging: settings.aging,
            classes: settings.classes.iter().map(Class::new).collect(),
            bands: BTreeMap::new(),
            entries: BTreeMap::new(),
            returned: VecDeque::new(),
            by_age: BTreeMap::new(),
            by_deadline: BTreeSet::new(),
            arrivals: 0,
            since_aged: 0,
        }
    }

    /// Follows other settings, whose classes are numbered as those before. All that wait go on waiting,
    /// also where that is more than may from now on; whose turn it is begins anew.
    pub fn follow(&mut self, settings: &AdmissionSettings) {
        assert!(
            settings.classes.len() >= self.classes.len(),
            "classes keep their numbers"
        );
        self.most = settings.queue;
        self.aging = settings.aging;
        let known = self.classes.len();
        for (class, new) in self.classes.iter_mut().zip(&settings.classes) {
            class.follow(new, settings);
        }
        let more = settings.classes.iter().skip(known);
        self.classes.extend(more.map(Class::new));
        self.bands.clear();
        for (id, class) in (0..).map(ClassId).zip(&self.classes) {
            if !class.arrivals.is_empty() {
                let band = self.bands.entry(class.priority);
                let band = band.or_insert_with(Rotation::new);
                band.enter(id, class.weight);
            }
        }
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many of a class wait, those that came back not among them.
    #[must_use]
    pub fn of_class(&self, class: ClassId) -> usize {
        self.class(class).arrivals.len()
    }

    /// Tokens of all that wait.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        let returned: u64 = self.returned.iter().map(|id| self.cost(*id)).sum();
        returned + self.classes.iter().map(|class| class.tokens).sum::<u64>()
    }

    /// Whether a request waits for longer than this moment.
    #[must_use]
    pub fn has_waited(&self, now: Instant, request: RequestId) -> bool {
        self.entries.get(&request).is_some_and(|e| e.since < now)
    }

    /// All that wait, in the order of their ids.
    pub fn requests(&self) -> impl Iterator<Item = RequestId> {
        self.entries.keys().copied()
    }

    /// When the first of them is to be turned away.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.by_deadline.first().map(|(until, _)| *until)
    }

    /// Whether a request may wait. `Ok` with somebody else: that one has to go for it, the newest of
    /// the class that is served last, because the queue is full.
    pub fn check(&self, class: ClassId, tenant: &TenantId) -> Result<Option<RequestId>, Full> {
        let own = self.class(class);
        if own.arrivals.len() >= own.queue {
            return Err(Full::Class(own.arrivals.len()));
        }
        let flow = own.flows.get(tenant).map_or(0, |f| f.requests.len());
        if flow >= own.tenant_queue {
            return Err(Full::Tenant(flow));
        }
        if self.len() < self.most {
            return Ok(None);
        }
        let last = self.bands.last_key_value();
        let (_, last) = last
            .filter(|(priority, _)| **priority > own.priority)
            .ok_or(Full::Queue(self.len()))?;
        let newest = last
            .flows()
            .filter_map(|class| self.class(*class).arrivals.last_key_value());
        Ok(newest.max().map(|(_, request)| *request))
    }

    /// A request waits from now on. `weight` is its tenant's.
    pub fn enter(&mut self, now: Instant, waiting: Waiting, weight: u32) {
        let (number, request) = (self.arrivals, waiting.request);
        self.arrivals += 1;
        let class = &mut self.classes[usize::from(waiting.class.0)];
        class.turns.enter(waiting.tenant.clone(), weight);
        let new = || Flow {
            weight,
            requests: BTreeMap::new(),
            tokens: 0,
        };
        let flow = class.flows.entry(waiting.tenant.clone());
        let flow = flow.or_insert_with(new);
        flow.requests.insert((waiting.priority, number), request);
        flow.tokens += waiting.cost;
        class.tokens += waiting.cost;
        class.arrivals.insert(number, request);
        let band = self
            .bands
            .entry(class.priority)
            .or_insert_with(Rotation::new);
        band.enter(waiting.class, class.weight);
        self.insert(now, waiting, number, false);
    }

    /// A request that was placed has to be placed again: it is first, and was charged before.
    pub fn come_back(&mut self, now: Instant, waiting: Waiting) {
        let (number, request) = (self.arrivals, waiting.request);
        self.arrivals += 1;
        self.returned.push_back(request);
        self.insert(now, waiting, number, true);
    }

    fn insert(&mut self, now: Instant, waiting: Waiting, number: u64, returned: bool) {
        let request = waiting.request;
        self.by_age.insert(number, request);
        self.by_deadline.insert((waiting.until, request));
        let entry = Entry {
            waiting,
            since: now,
            number,
            overtaken: 0,
            returned,
        };
        let old = self.entries.insert(request, entry);
        assert!(old.is_none(), "a request waits once");
    }

    /// A request was placed: it and those that share with it are charged.
    pub fn placed(&mut self, now: Instant, request: RequestId) {
        let aged = self.aged(now);
        if aged == Some(request) {
            self.since_aged = 0;
        } else if aged.is_some() {
            self.since_aged += 1;
        }
        let Some(entry) = self.entries.get(&request) else {
            return;
        };
        if !entry.returned {
            let (id, cost) = (entry.waiting.class, as_cost(entry.waiting.cost));
            let tenant = entry.waiting.tenant.clone();
            let class = &mut self.classes[usize::from(id.0)];
            class.turns.charge(&tenant, cost);
            if let Some(band) = self.bands.get_mut(&class.priority) {
                band.charge(&id, cost);
            }
        }
        self.leave(request);
    }

    /// A request waits no longer, for whatever reason. Whether it did.
    pub fn leave(&mut self, request: RequestId) -> bool {
        let Some(entry) = self.entries.remove(&request) else {
            return false;
        };
        let waiting = entry.waiting;
        self.by_age.remove(&entry.number);
        self.by_deadline.remove(&(waiting.until, request));
        if entry.returned {
            self.returned.retain(|id| *id != request);
            return true;
        }
        let class = &mut self.classes[usize::from(waiting.class.0)];
        class.arrivals.remove(&entry.number);
        class.tokens -= waiting.cost;
        if let Some(flow) = class.flows.get_mut(&waiting.tenant) {
            flow.requests.remove(&(waiting.priority, entry.number));
            flow.tokens -= waiting.cost;
            if flow.requests.is_empty() {
                class.flows.remove(&waiting.tenant);
                class.turns.leave(&waiting.tenant);
            }
        }
        let (priority, empty) = (class.priority, class.arrivals.is_empty());
        if empty && let Some(band) = self.bands.get_mut(&priority) {
            band.leave(&waiting.class);
            if band.flows().next().is_none() {
                self.bands.remove(&priority);
            }
        }
        true
    }

    /// Takes out those whose time to wait is over.
    pub fn expired(&mut self, now: Instant) -> Vec<RequestId> {
        let late = self
            .by_deadline
            .iter()
            .take_while(|(until, _)| *until <= now);
        let late: Vec<RequestId> = late.map(|(_, request)| *request).collect();
        for request in &late {
            self.leave(*request);
        }
        late
    }

    /// The first `most` requests to place, the first of them before all others. The rest may be
    /// placed where the first finds no room: the next of each tenant, in the order of their turns.
    pub fn candidates(&mut self, now: Instant, most: usize) -> Vec<RequestId> {
        let mut found: Vec<RequestId> = self.returned.iter().copied().take(most).collect();
        let aged = self
            .aged(now)
            .filter(|_| self.since_aged + 1 >= AGED_ONE_IN);
        push(&mut found, aged);
        let priorities: Vec<u16> = self.bands.keys().copied().collect();
        for priority in priorities {
            let flows = self.flows(priority, most);
            for depth in 0..most {
                let before = found.len();
                let mut deeper = false;
                for flow in &flows {
                    if found.len() >= most {
                        return found;
                    }
                    let next = self
                        .flow(flow)
                        .and_then(|flow| flow.requests.values().nth(depth));
                    deeper |= next.is_some();
                    push(&mut found, next.copied());
                }
                if !deeper && found.len() == before {
                    break;
                }
            }
        }
        found.truncate(most);
        found
    }

    /// The flows of one priority in the order of their turns: classes share, and in each its tenants.
    fn flows(&mut self, priority: u16, most: usize) -> Vec<(ClassId, TenantId)> {
        let mut next = BTreeMap::new();
        let Some(band) = self.bands.get_mut(&priority) else {
            return Vec::new();
        };
        let entries = &self.entries;
        for id in band.flows() {
            let class = &mut self.classes[usize::from(id.0)];
            let flows = &class.flows;
            let cost = |tenant: &TenantId| first_cost(entries, flows.get(tenant));
            if let Some(tenant) = class.turns.turn(cost) {
                next.insert(*id, cost(tenant));
            }
        }
        band.turn(|class| next.get(class).copied().unwrap_or(0));
        let classes: Vec<ClassId> = band.ahead().into_iter().copied().collect();
        classes
            .into_iter()
            .flat_map(|id| {
                let tenants = self.class(id).turns.ahead().into_iter();
                let tenants = tenants.take(most).cloned();
                tenants.map(move |tenant| (id, tenant)).collect::<Vec<_>>()
            })
            .take(most)
            .collect()
    }

    fn flow(&self, (class, tenant): &(ClassId, TenantId)) -> Option<&Flow> {
        self.class(*class).flows.get(tenant)
    }

    /// Somebody was placed while `first` found no room.
    pub fn overtaken(&mut self, first: RequestId) {
        if let Some(entry) = self.entries.get_mut(&first) {
            entry.overtaken += 1;
        }
    }

    /// How many were placed while this request was first and found no room.
    #[must_use]
    pub fn times_overtaken(&self, request: RequestId) -> u32 {
        self.entries.get(&request).map_or(0, |e| e.overtaken)
    }

    /// The oldest request, where it has waited longer than the aging time.
    fn aged(&self, now: Instant) -> Option<RequestId> {
        let (_, oldest) = self.by_age.first_key_value()?;
        let since = self.entries.get(oldest)?.since;
        (since + self.aging <= now).then_some(*oldest)
    }

    /// Tokens that are served before a new request of `cost` tokens would be, as the queue is now:
    /// all of the priorities before its own, and of its own what the others' weights give them by
    /// then. `weight` is its tenant's.
    #[must_use]
    pub fn tokens_before(&self, class: ClassId, tenant: &TenantId, cost: u64, weight: u32) -> u64 {
        let own = self.class(class);
        let share = |served: u64, theirs: u32, ours: u32| {
            served.saturating_mul(u64::from(theirs.max(1))) / u64::from(ours.max(1))
        };
        // Its tenant's tokens that are served by then, and so those of its class.
        let by_tenant = cost + own.flows.get(tenant).map_or(0, |flow| flow.tokens);
        let others = own.flows.iter().filter(|(name, _)| *name != tenant);
        let others = others.map(|(_, f)| f.tokens.min(share(by_tenant, f.weight, weight)));
        let by_class = by_tenant + others.sum::<u64>();
        let classes = (0..).map(ClassId).zip(&self.classes);
        let elsewhere = classes.map(|(id, other)| match other.priority.cmp(&own.priority) {
            Ordering::Less => other.tokens,
            Ordering::Equal if id != class => {
                other.tokens.min(share(by_class, other.weight, own.weight))
            }
            _ => 0,
        });
        let returned: u64 = self.returned.iter().map(|id| self.cost(*id)).sum();
        returned + elsewhere.sum::<u64>() + by_class - cost
    }

    fn cost(&self, request: RequestId) -> u64 {
        self.entries.get(&request).map_or(0, |e| e.waiting.cost)
    }

    fn class(&self, class: ClassId) -> &Class {
        &self.classes[usize::from(class.0)]
    }
}

fn first_cost(entries: &BTreeMap<RequestId, Entry>, flow: Option<&Flow>) -> i64 {
    let first = flow.and_then(|flow| flow.requests.first_key_value());
    let entry = first.and_then(|(_, request)| entries.get(request));
    entry.map_or(0, |e| as_cost(e.waiting.cost))
}

fn as_cost(tokens: u64) -> i64 {
    i64::try_from(tokens.max(1))
        .unwrap_or(i64::MAX >> 8)
        .min(i64::MAX >> 8)
}

fn push(found: &mut Vec<RequestId>, request: Option<RequestId>) {
    if let Some(request) = request.filter(|id| !found.contains(id)) {
        found.push(request);
    }
}
