# frozen_string_literal: true

require 'json'
require_relative 'natural_order'
require_relative 'run_file'

module PuppetX
  module Muster
    # All data that this node may look up, at one revision of the store. The agent writes the file before the run, and nothing
    # else is read: a run uses one consistent state and never the network.
    class Snapshot
      VARIABLE = 'MUSTER_SNAPSHOT'

      # The snapshot of this run, read once, so that all lookups use the same state.
      def self.current
        path = RunFile.path(VARIABLE)
        @current ||= {}
        @current[path] ||= read(path)
      end

      def self.read(path)
        new(JSON.parse(File.read(path, encoding: Encoding::UTF_8)), path)
      rescue SystemCallError => e
        raise Puppet::Error, "cannot read the snapshot in #{VARIABLE} (#{path}): #{e.message}"
      rescue JSON::ParserError, EncodingError => e
        # The parser's message contains a part of the text, which may be a secret.
        raise Puppet::Error, "the snapshot in #{VARIABLE} (#{path}) is not JSON (#{e.class})"
      end
      private_class_method :read

      # A missing table is an error and not an empty one: content would act as if there were no nodes.
      def initialize(data, path)
        @data = data
        @path = path
        malformed('is not an object') unless data.is_a?(Hash)
        malformed('has no object "active_roles" of roles, nodes and interfaces') unless objects?(data['active_roles'], 2)
        malformed('has no object "leaders" of roles') unless objects?(data['leaders'], 1)
        malformed('has no object "published" of keys and nodes') unless objects?(data['published'], 1)
        malformed('has no object "services" of services and nodes') unless objects?(data['services'], 2)
        malformed('has no object "data" of keys with a value each') unless data?(data['data'])
        # An agent of an older version writes none.
        malformed('has a "self" that is not an object') unless objects?(data['self'] || {}, 0)
      end

      # One of the node's own facts, such as `node` or `interfaces`.
      def fetch(name)
        @data.fetch(name) { malformed("has no \"#{name}\"") }
      end

      # role → node → {interface → address}: all roles of the environment, with their nodes in natural order.
      def all_active
        @data['active_roles'].to_h { |role, nodes| [role, in_order(nodes)] }
      end

      # node → {interface → address}, in natural order of the nodes; nil when the environment has no such role.
      def active(role)
        in_order(@data['active_roles'][role])
      end

      # The addresses of the role's active nodes on one interface, in natural order of the nodes. A node without that
      # interface is left out. nil when the environment has no such role.
      def addresses(role, interface)
        active(role)&.values&.filter_map do |interfaces|
          # Hiera digs at dots, so a key names eth0.100 as eth0_100.
          interfaces[interface] || interfaces.find { |name, _| name.tr('.', '_') == interface }&.last
        end
      end

      # node, host, epoch and interfaces of the role's leader; nil when it has none.
      def leader(role)
        leader = @data['leaders'][role]
        node = leader && leader['node']
        return nil if node.nil?

        { 'node' => node, 'host' => node.tr('_', '-'), 'epoch' => leader['epoch'], 'interfaces' => leader['interfaces'] || {} }
      end

      # node → value, in natural order of the nodes; empty if no node publishes the key.
      def published(key)
        in_order(@data['published'][key] || {})
      end

      # [{node, address, port, tags}] in natural order of the nodes; empty if no node offers the service. nil for a name that
      # no service can have.
      def services(name)
        return nil unless name.match?(/\A[a-z][a-z0-9_-]{0,39}\z/)

        in_order(@data['services'][name] || {}).map do |node, service|
          { 'node' => node, 'address' => service['address'], 'port' => service['port'], 'tags' => service['tags'] || [] }
        end
      end

      # A value of this node in the design, by the names of the members on the way; nil if there is none.
      def self_value(names)
        names.reduce(@data['self'] || {}) do |value, name|
          case value
          # Hiera digs at dots, so a key names eth0.100 as eth0_100.
          when Hash then value.fetch(name) { value.find { |member, _| member.tr('.', '_') == name }&.last }
          when Array then name.match?(/\A[0-9]+\z/) ? value[name.to_i] : nil
          end
        end
      end

      # {value, secret, layer}, or {unavailable, secret, layer} if the server could not open a secret, of the host, role or global layer; nil if no layer has the key.
      def datum(key)
        @data['data'][key]
      end

      private

      def in_order(nodes)
        nodes&.sort_by { |node, _| NaturalOrder.key(node) }&.to_h
      end

      # True for an object of objects with this depth.
      def objects?(value, depth)
        value.is_a?(Hash) && (depth.zero? || value.each_value.all? { |inner| objects?(inner, depth - 1) })
      end

      def data?(value)
        objects?(value, 1) && value.each_value.all? { |datum| datum.key?('value') || datum.key?('unavailable') }
      end

      def malformed(what)
        raise Puppet::Error, "the snapshot in #{VARIABLE} (#{@path}) #{what}"
      end
    end
  end
end
