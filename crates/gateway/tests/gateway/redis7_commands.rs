//! The commands whose rights are compared with Redis: all that a gateway answers.

use crate::common::{Client, Cluster, host};
use bytes::Bytes;
use ionian_gateway::Limits;
use ionian_machines::acl::CommandId;

/// Commands on the keys `first` and `other`, in harmless forms: users who may do everything execute
/// them. Left out are subcommands that only Ionian has: Redis looks for these before it judges.
const COMMANDS: &str = "
    append first v; copy first other; dbsize; decr first; decrby first 1; del first other
    exists first other; expire first 100; expireat first 9999999999; expiretime first; get first
    getdel first; getex first; getrange first 0 1; getset first 1; incr first; incrby first 1
    incrbyfloat first 1; keys x*; mget first other; mset first 1 other 2; msetnx first 1 other 2
    persist first; pexpire first 100000; pexpireat first 9999999999999; pexpiretime first
    psetex first 100000 1; pttl first; randomkey; rename first other; renamenx first other; scan 0
    set first 1; set first 1 get; set first 1 nx get; setex first 100 1; setnx first 1
    setrange first 0 1; strlen first; substr first 0 1; touch first other; ttl first; type first
    memory usage first; memory usage first samples 5; memory help; memory usage; memory doctor
    memory malloc-stats; memory purge; memory stats; object encoding first; object freq first
    object help; object idletime first; object refcount first; object encoding; unlink first other
    xadd s:first * f v; xadd s:first maxlen 5 * f v; xdel s:first 1-1; xlen s:first
    xrange s:first - +; xrevrange s:first + -; xread streams s:first 0
    xread count 1 streams s:first other 0 0; xtrim s:first maxlen 5; xinfo stream s:first
    xinfo nothing s:first; xinfo consumers s:first g; xinfo groups s:first; xinfo help
    xsetid s:first 9-9; flushall; flushdb; ping; echo x; select 0; time; asking; readonly; readwrite
    client caching yes; client getname; client getredir; client help; client id; client info
    client kill id 999999999; client list; client no-evict off; client pause x; client reply on
    client setname n; client tracking off; client trackinginfo; client unblock 999999999
    client unpause; config get maxmemory; config help; config resetstat; config rewrite
    config set timeout 0; config set maxmemory 0; info server; acl cat; acl cat read
    acl deluser missing; acl dryrun default ping; acl genpass; acl getuser missing; acl help
    acl list; acl load; acl log; acl log reset; acl save; acl setuser made; acl users; acl whoami
    command; command count; command docs get; command getkeys get first
    command getkeysandflags get first; command help; command info get; command list
    cluster addslots 1; cluster addslotsrange 1 2; cluster bumpepoch
    cluster count-failure-reports x; cluster countkeysinslot 1; cluster delslots 1
    cluster delslotsrange 1 2; cluster failover; cluster flushslots; cluster forget x
    cluster getkeysinslot 1 1; cluster help; cluster info; cluster keyslot first; cluster links
    cluster meet 127.0.0.1 1; cluster myid; cluster nodes; cluster replicas x; cluster replicate x
    cluster reset; cluster saveconfig; cluster set-config-epoch 1; cluster setslot 1 stable
    cluster shards; cluster slaves x; cluster slots; slowlog get; slowlog help; slowlog len
    slowlog reset; latency doctor; latency graph x; latency help; latency histogram
    latency history x; latency latest; latency reset; module help; module list; module load x
    module loadex x; module unload x; role; wait 0 0; watch first; watch first other; unwatch
    exec; discard; hello 2; get; set first; nothing first; mget; auth a b c
";

/// Commands that Redis does not have: nothing to be compared, but they need a right.
pub(crate) const OURS_ALONE: &[&str] = &[
    "ionian check",
    "ionian consistency",
    "ionian consistency eventual",
    "client setinfo lib-name x",
    "client trace on",
];

/// MULTI begins every transaction of the comparison. QUIT and RESET, which every client may use,
/// would end it.
const ELSEWHERE: &[&str] = &["multi", "quit", "reset"];

/// All of them, a line each.
pub(crate) fn commands() -> Vec<&'static str> {
    let all = COMMANDS.split([';', '\n']).map(str::trim);
    all.filter(|line| !line.is_empty()).collect()
}

/// What rules call the command of a line.
fn id(line: &str) -> Option<CommandId> {
    let words: Vec<_> = line
        .split(' ')
        .map(|it| Bytes::from(it.to_owned()))
        .collect();
    CommandId::named(&words[0]).map(|id| id.with_subcommand(&words))
}

/// A command that is added to a table, or a subcommand of one, has to be added here as well.
#[test]
fn every_command_of_the_tables_is_compared() {
    let (mut client, mut cluster) = (Client::new(&host(Limits::default())), Cluster::default());
    let listed = client.ask(&mut cluster, "COMMAND LIST");
    let answered: Vec<&str> = listed
        .lines()
        .filter(|line| !line.starts_with(['*', '$']))
        .collect();
    assert!(answered.contains(&"get") && answered.contains(&"acl"));
    let lines = [&commands()[..], OURS_ALONE, ELSEWHERE].concat();
    let tried: Vec<CommandId> = lines.iter().filter_map(|line| id(line)).collect();
    let missing: Vec<&str> = CommandId::all()
        .filter(|id| {
            let command = id.name().split('|').next().unwrap_or_default();
            answered.contains(&command) && !id.is_container()
        })
        .filter(|id| !tried.contains(id))
        .map(CommandId::name)
        .collect();
    assert_eq!(
        missing, [""; 0],
        "to be added to COMMANDS, or to OURS_ALONE"
    );
    for name in answered {
        assert!(
            lines
                .iter()
                .any(|line| line.split(' ').next() == name.split('|').next()),
            "{name} is to be added to COMMANDS, or to OURS_ALONE"
        );
    }
}
