# frozen_string_literal: true

# __FILE__ and not require_relative: Puppet evaluates this text, and the module is found through the modulepath alone.
require File.expand_path('../../../puppet_x/muster/lookups', File.dirname(__FILE__))
require File.expand_path('../../../puppet_x/muster/snapshot', File.dirname(__FILE__))

# Hiera 5 backend over the snapshot that muster-agent writes before each run. In hiera.yaml:
#
#     hierarchy:
#       - {name: muster, lookup_key: muster::lookup_key}
#
# Keys that begin with `etcdlookup::` tell of other nodes:
#
#     etcdlookup::active_roles::<role>               {node => {interface => address}}
#     etcdlookup::active_roles::<role>::<interface>  the addresses as a list
#     etcdlookup::leader::<role>                     {node, host, epoch, interfaces}; not found without a leader
#     etcdlookup::published::<key>                   {node => value}; {} when nobody publishes the key
#
# Every other key is one of the environment's configuration data; a secret one comes as Sensitive. What comes out of the
# store is data: it is never interpolated here.
Puppet::Functions.create_function(:'muster::lookup_key') do
  dispatch :lookup_key do
    param 'Variant[String, Numeric]', :key
    param 'Hash', :options
    param 'Puppet::LookupContext', :context
  end

  def lookup_key(key, _options, context)
    key = key.to_s
    # Hiera's own question about how to merge; no datum may answer it.
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

  # Content asks for every parameter of every class this way, so nothing here is done twice or at length.
  def datum(key, context)
    # No datum has such a name, so that there is nothing to find, and nothing that could change.
    context.not_found if key.match?(/[\r\n]/)

    PuppetX::Muster::Lookups.record("data::#{key}")
    datum = PuppetX::Muster::Snapshot.current.datum(key)
    context.not_found if datum.nil?
    context.explain { "#{key} is configuration data of the #{datum['layer']} layer" }
    value = datum['value']
    datum['secret'] ? Puppet::Pops::Types::PSensitiveType::Sensitive.new(value) : value
  end

  def find(snapshot, wanted)
    table, separator, name = wanted.partition('::')
    return nil if separator.empty?

    case table
    when 'active_roles'
      role, interface, *rest = name.split('::', -1)
      return nil unless role && rest.empty?

      interface ? snapshot.addresses(role, interface) : snapshot.active(role)
    when 'leader' then snapshot.leader(name)
    # A key of what is published may hold `::` itself.
    when 'published' then snapshot.published(name)
    end
  end
end
