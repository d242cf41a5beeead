# frozen_string_literal: true

# __FILE__ and not require_relative: Puppet evaluates this text, and finds the module only through the modulepath.
require File.expand_path('../../../puppet_x/muster/lookups', File.dirname(__FILE__))
require File.expand_path('../../../puppet_x/muster/pending', File.dirname(__FILE__))
require File.expand_path('../../../puppet_x/muster/snapshot', File.dirname(__FILE__))

# Hiera 5 backend over the snapshot that muster-agent writes before each run. In hiera.yaml:
#
#     hierarchy:
#       - {name: muster, lookup_key: muster::lookup_key}
#
# Keys with the prefix `muster::` return data of other nodes:
#
#     muster::active_roles                           {role => {node => {interface => address}}}
#     muster::active_roles::<role>                   {node => {interface => address}}
#     muster::active_roles::<role>::<interface>      the addresses as a list
#     muster::leader::<role>                         {node, host, epoch, interfaces}; not found without a leader
#     muster::published::<key>                       {node => value}; {} if no node publishes the key
#     muster::services::<name>                       [{node, address, port, tags}]; [] if no node offers the service
#     muster::self                                   the values of this node in the design, resolved
#     muster::self::<member>[::<member>]             one of them, such as muster::self::fqdn or muster::self::dns::servers
#
# The older prefix `etcdlookup::` gives the same values. Every other key is configuration data of the environment, also one
# that begins with `muster::`. A secret value is returned as Sensitive. Values are never interpolated.
Puppet::Functions.create_function(:'muster::lookup_key') do
  dispatch :lookup_key do
    param 'Variant[String, Numeric]', :key
    param 'Hash', :options
    param 'Puppet::LookupContext', :context
  end

  def lookup_key(key, _options, context)
    key = key.to_s
    # Hiera looks up its merge options; configuration data must not answer that.
    context.not_found if key == 'lookup_options'

    wanted = without_prefix(key)
    if wanted
      PuppetX::Muster::Lookups.record(wanted)
      found = find(PuppetX::Muster::Snapshot.current, wanted)
      context.not_found if found.nil?
      context.explain { "#{key} comes from the snapshot of this run" }
      found
    else
      datum(key, context)
    end
  end

  # Returns the key without its prefix, or nil for configuration data. Other keys that begin with `muster::` are data, for
  # example parameters of a class named `muster`.
  def without_prefix(key)
    prefix, separator, wanted = key.partition('::')
    return nil if separator.empty?
    return wanted if prefix == 'etcdlookup'

    wanted if prefix == 'muster' && wanted.match?(/\A(?:(?:active_roles|self)\z|(?:active_roles|leader|published|services|self)::)/)
  end

  # Puppet looks up every parameter of every class, so this must be fast.
  def datum(key, context)
    # No configuration data can have this name, so there is nothing to find and nothing to record.
    context.not_found if key.match?(/[\r\n]/)

    PuppetX::Muster::Lookups.record("data::#{key}")
    datum = PuppetX::Muster::Snapshot.current.datum(key)
    context.not_found if datum.nil?
    context.explain { "#{key} is configuration data of the #{datum['layer']} layer" }
    unavailable(key, datum['unavailable']) if datum['unavailable']
    value = datum['value']
    datum['secret'] ? Puppet::Pops::Types::PSensitiveType::Sensitive.new(value) : value
  end

  # The server could not open a secret. The run waits for it: an empty value would be applied.
  def unavailable(key, why)
    reason = "the secret #{key} is not available: #{why}"
    PuppetX::Muster::Pending.stop({ kind: 'other', reason: reason }, reason)
  end

  def find(snapshot, wanted)
    return snapshot.all_active if wanted == 'active_roles'
    return snapshot.self_value(wanted.split('::', -1).drop(1)) if wanted.match?(/\Aself(?:::.+)?\z/)

    table, separator, name = wanted.partition('::')
    return nil if separator.empty?

    case table
    when 'active_roles'
      role, interface, *rest = name.split('::', -1)
      return nil unless role && rest.empty?

      interface ? snapshot.addresses(role, interface) : snapshot.active(role)
    when 'leader' then snapshot.leader(name)
    # A published key may contain `::`.
    when 'published' then snapshot.published(name)
    when 'services' then snapshot.services(name)
    end
  end
end
