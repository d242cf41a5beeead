# frozen_string_literal: true

# __FILE__ and not require_relative: Puppet evaluates this text, and finds the module only through the modulepath.
require File.expand_path('../../../puppet_x/muster/lookups', File.dirname(__FILE__))
require File.expand_path('../../../puppet_x/muster/snapshot', File.dirname(__FILE__))

# Hiera 5 backend over the snapshot that muster-agent writes before each run. In hiera.yaml:
#
#     hierarchy:
#       - {name: muster, lookup_key: muster::lookup_key}
#
# Keys with the prefix `etcdlookup::` return data of other nodes:
#
#     etcdlookup::active_roles                       {role => {node => {interface => address}}}
#     etcdlookup::active_roles::<role>               {node => {interface => address}}
#     etcdlookup::active_roles::<role>::<interface>  the addresses as a list
#     etcdlookup::leader::<role>                     {node, host, epoch, interfaces}; not found without a leader
#     etcdlookup::published::<key>                   {node => value}; {} if no node publishes the key
#     etcdlookup::services::<name>                   [{node, address, port, tags}]; [] if no node offers the service
#
# Every other key is configuration data of the environment. A secret value is returned as Sensitive. Values are never
# interpolated.
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

    prefix, separator, wanted = key.partition('::')
    if prefix == 'etcdlookup' && !separator.empty?
      PuppetX::Muster::Lookups.record(wanted)
      found = find(PuppetX::Muster::Snapshot.current, wanted)
      context.not_found if found.nil?
      context.explain { "#{key} comes from the snapshot of this run" }
      found
    else
      datum(key, context)
    end
  end

  # Puppet looks up every parameter of every class, so this must be fast.
  def datum(key, context)
    # No configuration data can have this name, so there is nothing to find and nothing to record.
    context.not_found if key.match?(/[\r\n]/)

    PuppetX::Muster::Lookups.record("data::#{key}")
    datum = PuppetX::Muster::Snapshot.current.datum(key)
    context.not_found if datum.nil?
    context.explain { "#{key} is configuration data of the #{datum['layer']} layer" }
    value = datum['value']
    datum['secret'] ? Puppet::Pops::Types::PSensitiveType::Sensitive.new(value) : value
  end

  def find(snapshot, wanted)
    return snapshot.all_active if wanted == 'active_roles'

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
